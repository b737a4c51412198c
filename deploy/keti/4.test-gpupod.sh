#!/bin/sh
# A Job that asks for one MPS share. Look at it with: kubectl -n userpod get pods -o wide
. "$(dirname "$0")/common.sh"

need_cluster
need_namespace userpod
say "The Job of KETI's guide:"
apply "$manifests/testgpupod.yaml"
