#!/bin/sh
# The accounts of the scheduler and of the parts on nodes, and what they may do. Run it again as often as you like.
. "$(dirname "$0")/common.sh"

need_cluster
refuse_cluster_admin
need_namespace gpu
say "Accounts and rights:"
apply "$manifests/rbac/role_binding.yaml"
apply "$manifests/rbac/service_account.yaml"
