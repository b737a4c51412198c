#!/bin/sh
# The policy of the scheduler. Edit deployments/gpu-scheduler-configmap.yaml and run it again: the change counts at once.
. "$(dirname "$0")/common.sh"

need_cluster
need_namespace gpu
say "The policy:"
apply "$manifests/gpu-scheduler-configmap.yaml"
