# What the numbered scripts of this folder share. They read it with `.`; it does nothing alone.
# shellcheck shell=sh disable=SC2034

set -eu
here=$(cd "$(dirname "$0")" && pwd)
deploy=$(dirname "$here")    # the manifests that every installation of gpushare has
manifests=$here/deployments  # KETI's

say() { printf '%s\n' "$*"; }

stop() {
    printf '%s\n' "$*" >&2
    exit 1
}

# Ends with one sentence if nothing can be done from here.
need_cluster() {
    command -v kubectl >/dev/null 2>&1 ||
        stop "kubectl not found: install it on this machine, or run this script on the control plane."
    said=$(kubectl get --raw /version 2>&1) ||
        stop "No cluster answers kubectl ($(printf '%s' "$said" | tail -n 1)). Look at KUBECONFIG, and try: kubectl get nodes"
}

# kubectl apply, for files or for what comes in.
apply() { kubectl apply -f "$@"; }

need_namespace() {
    if ! kubectl get namespace "$1" >/dev/null 2>&1; then
        say "Making namespace $1."
        kubectl create namespace "$1"
    fi
}

# Whether the API server knows a kind of object: its plural name, then its group and version.
has_kind() { kubectl get --raw "/apis/$2" 2>/dev/null | grep -q "\"name\":\"$1\""; }

# Whether an object is there; the words are those of kubectl get.
there() { [ -n "$(kubectl get "$@" --ignore-not-found -o name)" ]; }

# KETI's guide makes its accounts cluster-admin. They have the names of ours, which need no such right.
refuse_cluster_admin() {
    bindings='{range .items[?(@.roleRef.name=="cluster-admin")]}{.metadata.name}{range .subjects[*]}{" "}{.namespace}/{.name}{end}{"\n"}{end}'
    for name in $(kubectl get clusterrolebindings -o "jsonpath=$bindings" |
        awk '/ gpu\/(scheduler|keti-gpu-device-plugin)( |$)/ {print $1}'); do
        stop "ClusterRoleBinding $name of KETI's installation makes this account cluster-admin." \
            "Delete it first: kubectl delete clusterrolebinding $name"
    done
}

# Which part of gpushare admits pods in this cluster: from Kubernetes 1.36 on policies, before that a webhook.
has_policies() { has_kind mutatingadmissionpolicies admissionregistration.k8s.io/v1; }
