#!/bin/sh
# Removes what the other scripts made. Pods that run keep running. InfluxDB's data, the policy ConfigMaps and the
# namespaces stay: the last lines say how to delete them.
. "$(dirname "$0")/common.sh"

nothing='{"keti.com/mpsgpu": null, "aliyun.com/gpu-mem": null, "aliyun.com/gpu-count": null}'

remove() { kubectl delete --ignore-not-found --wait=true -f "$@"; }

need_cluster
say "The modules:" # with their pods: a part that ends still needs its rights
remove "$manifests/gpu-scheduler.yaml" -f "$manifests/metric-collector.yaml" -f "$manifests/device-plugin.yaml" \
    -f "$manifests/influxdb.yaml" --cascade=foreground --timeout=3m
say "Accounts and rights:"
remove "$manifests/rbac/role_binding.yaml" -f "$manifests/rbac/service_account.yaml"

others=$(kubectl -n kube-system get deployment,daemonset -l app=gpushare,component!=gpushare-webhook -o name)
if [ -n "$others" ]; then
    say "Policies and GPUNodes stay: other parts of gpushare use them" "($(printf '%s' "$others" | tr '\n' ' '))."
else
    say "What admits pods, and the kind GPUNode:"
    if has_policies; then
        remove "$deploy/admission.yaml" -f "$deploy/guard.yaml" -f "$deploy/node-guard.yaml" -f "$deploy/validate.yaml" \
            -f "$manifests/priority.yaml"
    else
        remove "$deploy/webhook.yaml"
        kubectl delete --ignore-not-found priorityclass gpu-low gpu-high gpu-immediate
    fi
    remove "$deploy/crds/gpunodes.yaml"
    say "What nodes say about their GPUs:"
    sold='{range .items[?(@.status.capacity.keti\.com/mpsgpu)]}{.metadata.name}{"\n"}{end}'
    for node in $(kubectl get nodes -o "jsonpath=$sold"); do
        kubectl annotate node "$node" gpushare.io/gpus-
        kubectl patch node "$node" --subresource=status -p "{\"status\": {\"capacity\": $nothing}}"
    done
fi
say "Still there: the data of InfluxDB, and your policy. To delete them:"
say "  kubectl -n gpu delete pvc data-influxdb-0 && kubectl delete pv keti-influxdb --ignore-not-found"
say "  kubectl -n gpu delete configmap gpu-scheduler-configmap gpu-scheduler-policy --ignore-not-found"
