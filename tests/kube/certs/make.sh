#!/bin/sh
# Makes the certificates in this folder anew. They are for tests only: nothing trusts them.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: > "$work/index"
cat > "$work/ca.cnf" <<CONF
[ca]
default_ca = here
[here]
database = $work/index
new_certs_dir = $work
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
organizationName = optional
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
subjectAltName = DNS:kubernetes.default,IP:127.0.0.1
extendedKeyUsage = serverAuth
authorityKeyIdentifier = keyid
[client]
extendedKeyUsage = clientAuth
authorityKeyIdentifier = keyid
CONF
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"; }
sign() { # name, extensions, common name, from, until
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$3" -out "$work/$1.csr"
    openssl ca -batch -notext -config "$work/ca.cnf" -cert ca.crt -keyfile "$work/ca.key" -extensions "$2" \
        -startdate "$4" -enddate "$5" -in "$work/$1.csr" -out "$1.crt" 2> /dev/null
}
key "$work/ca"
openssl req -new -key "$work/ca.key" -subj /CN=test-ca -out "$work/ca.csr"
openssl ca -batch -notext -config "$work/ca.cnf" -selfsign -keyfile "$work/ca.key" -extensions authority \
    -startdate 20200101000000Z -enddate 21200101000000Z -in "$work/ca.csr" -out ca.crt 2> /dev/null
sign server server test-server 20200101000000Z 21200101000000Z
sign client client admin 20200101000000Z 21200101000000Z
sign expired client admin 20200101000000Z 20210131000000Z
