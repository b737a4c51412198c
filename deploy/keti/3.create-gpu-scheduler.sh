#!/bin/sh
# The four modules: scheduler, device plugin with MPS, metric collector, InfluxDB; and what admits pods. It ends when
# all of them run. Run it again as often as you like.
. "$(dirname "$0")/common.sh"

patience=${WAIT_SECONDS:-300} # for each module

# Two extenders would give the same memory out twice.
refuse_another_scheduler() {
    for name in gpushare-schd-extender gpu-scheduler; do
        if there -n kube-system deployment "$name"; then
            stop "Another extender of gpushare runs in this cluster, and two would give the same GPU memory out twice." \
                "Delete it first: kubectl -n kube-system delete deployment $name"
        fi
    done
    for what in deployment/keti-gpu-scheduler daemonset/keti-gpu-device-plugin daemonset/keti-gpu-metric-collector \
        statefulset/influxdb; do
        if there -n gpu "$what" && [ "$(label_of "$what")" != gpushare ]; then
            stop "KETI's own $what is still here. Delete it first: kubectl -n gpu delete $what"
        fi
    done
    for name in gpushare-node gpushare-device-plugin-ds gpushare-mps; do
        if there -n kube-system daemonset "$name"; then
            stop "DaemonSet $name serves the same GPUs." \
                "Delete it first: kubectl -n kube-system delete daemonset $name"
        fi
    done
}

label_of() { kubectl -n gpu get "$1" -o 'jsonpath={.metadata.labels.app}'; }

# The gpu-scheduler of this cluster's version: kube-scheduler's image, and the format of its configuration.
scheduler() {
    version=$(printf '%s' "$said" | sed -n 's/.*"gitVersion": *"\(v[0-9]*\.[0-9]*\.[0-9]*\).*/\1/p')
    minor=$(printf '%s' "$version" | cut -d . -f 2)
    case $minor in
    '' | ? | 1[0-9] | 20) stop "Kubernetes ${version:-of unknown version} is too old: 1.21 is the oldest that can run this." ;;
    21 | 22) format=v1beta1 ;;
    23 | 24) format=v1beta3 ;;
    *) format=v1 ;;
    esac
    sed -e "s,\(kube-scheduler:\)v[0-9.]*$,\1$version," \
        -e "s,\(kubescheduler.config.k8s.io/\)v1$,\1$format," "$manifests/gpu-scheduler.yaml"
}

has_storage() {
    classes=$(kubectl get storageclass -o 'jsonpath={.items[*].metadata.annotations}')
    case $classes in *'is-default-class":"true"'*) return 0 ;; esac
    there -n gpu pvc data-influxdb-0 || there pv keti-influxdb
}

# The first node that takes pods keeps the data of InfluxDB.
volume() {
    nodes='{range .items[*]}{.metadata.labels.kubernetes\.io/hostname}{" "}{.spec.taints[*].effect}{"\n"}{end}'
    node=$(kubectl get nodes -o "jsonpath=$nodes" | awk '!/ No(Schedule|Execute)/ {print $1; exit}')
    [ -n "$node" ] || stop "No node takes pods, so there is no place for InfluxDB's data. See: kubectl get nodes"
    say "No default StorageClass: InfluxDB's data goes to /var/lib/keti-influxdb on node $node."
    sed "s,values: \[NODE\],values: [$node]," "$manifests/influxpv.yaml" | apply -
}

not_ready() { stop "$1 is not ready after $patience s. See: kubectl -n gpu describe pods, and docs/gpu-scheduler.md"; }

# All pods of a DaemonSet are ready. `kubectl rollout status` does not know one that is updated by hand.
wait_for_daemonset() {
    state='{.metadata.generation}/{.status.observedGeneration}/{.status.desiredNumberScheduled}/{.status.numberReady}'
    left=$patience
    until kubectl -n gpu get "$1" -o "jsonpath=$state" |
        awk -F / 'NF == 4 && $1 == $2 && $3 == $4 {ready = 1} END {exit !ready}'; do
        [ "$left" -gt 0 ] || not_ready "$1"
        left=$((left - 2))
        sleep 2
    done
    say "$1 is ready."
}

need_cluster
need_namespace gpu
there -n gpu serviceaccount scheduler || stop "The accounts are missing. First run ./1.rbac-gpu-scheduler.sh"
refuse_cluster_admin
refuse_another_scheduler
scheduler >/dev/null # a version that is too old changes nothing

say "What admits pods, and the kind GPUNode:"
apply "$deploy/crds/gpunodes.yaml"
if has_policies; then
    apply "$deploy/admission.yaml" -f "$deploy/guard.yaml" -f "$deploy/node-guard.yaml" -f "$deploy/validate.yaml"
    apply "$manifests/priority.yaml"
else
    say "This cluster has no MutatingAdmissionPolicy (Kubernetes 1.36), so a webhook does its work: docs/webhook.md"
    apply "$deploy/webhook.yaml"
    awk '/^---$/ {n += 1} n < 3' "$manifests/priority.yaml" | apply - # its three classes, without the policy
    kubectl -n kube-system rollout status deployment/gpushare-webhook --timeout="${patience}s"
    [ "$minor" -lt 32 ] || apply "$deploy/node-guard.yaml"
fi

say "The modules:"
kubectl label --overwrite namespace gpu gpushare.io/unasked=leave # they see all GPUs, also where unasked.yaml is applied
has_storage || volume
apply "$manifests/influxdb.yaml" -f "$manifests/device-plugin.yaml" -f "$manifests/metric-collector.yaml"
scheduler | apply -
need_namespace userpod # where KETI's examples run
if ! has_policies && [ "$minor" -lt 28 ]; then
    say "Before Kubernetes 1.28 every namespace with GPU pods needs this label, too:"
    kubectl label --overwrite namespace userpod gpushare.io/pin=direct
fi

wait_for_daemonset daemonset/keti-gpu-device-plugin
for what in statefulset/influxdb daemonset/keti-gpu-metric-collector deployment/keti-gpu-scheduler; do
    kubectl -n gpu rollout status "$what" --timeout="${patience}s" || not_ready "$what"
done
kubectl -n gpu get pods
