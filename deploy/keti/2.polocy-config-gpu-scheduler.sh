#!/bin/sh
# The name that KETI's guide has for step 2, and again for step 4, where the modules are deployed. So it does both.
. "$(dirname "$0")/common.sh"

"$here/2.policy-config-gpu-scheduler.sh"
if there -n gpu serviceaccount scheduler; then
    "$here/3.create-gpu-scheduler.sh"
else
    say "No module is deployed yet: first run ./1.rbac-gpu-scheduler.sh"
fi
