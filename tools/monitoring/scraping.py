"""How Prometheus reaches nodes and extender, as the texts of two files.

The jobs are called `gpushare-node` and `gpushare-extender`: alerts and boards ask for these names. Labels of a metric
win over those of its target (honor labels), because `namespace`, `pod` and `container` are those of a pod that uses a
GPU. The target's own must not be there at all: figures of a shared GPU would seem to be of the pod that exports them.
"""

from typing import Final

NAMESPACE: Final = "kube-system"
KETI: Final = "gpu"  # the namespace of deploy/keti
TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
# Labels of pods: component.
NODES: Final = ("gpushare-node", "gpushare-device-plugin", "gpushare-nvidia", "keti-gpu-metric-collector")
EXTENDERS: Final = ("gpushare-schd-extender", "gpu-scheduler", "keti-gpu-scheduler")
_NODE, _EXTENDER = "|".join(NODES), "|".join(EXTENDERS)

SCRAPE_CONFIG: Final = f"""\
# What a Prometheus of your own has to scrape: put these jobs into its scrape_configs, or name this file in
# scrape_config_files (Prometheus 2.43 and later). Prometheus runs in the cluster here. Its service account has to find
# pods in {NAMESPACE} and to read /metrics. Once view-rbac.yaml is applied, give it both rights:
#   kubectl -n {NAMESPACE} create role gpushare-scrape --verb=get,list,watch --resource=pods
#   kubectl -n {NAMESPACE} create rolebinding gpushare-scrape --role=gpushare-scrape --serviceaccount=NAMESPACE:NAME
#   kubectl create clusterrolebinding gpushare-scrape --clusterrole=gpushare-metrics --serviceaccount=NAMESPACE:NAME
scrape_configs:
  - job_name: gpushare-node
    scheme: https
    honor_labels: true # namespace, pod and container are those of the pods that use GPUs
    authorization:
      credentials_file: {TOKEN}
    tls_config:
      insecure_skip_verify: true # each node makes its certificate itself; --metrics-tls-cert changes that
    kubernetes_sd_configs:
      - role: pod
        namespaces: {{names: [{NAMESPACE}]}} # with deploy/keti: {KETI}, where it needs the first two rights, too
    relabel_configs:
      - source_labels: [__meta_kubernetes_pod_label_component, __meta_kubernetes_pod_container_port_name]
        regex: ({_NODE});metrics
        action: keep
      - source_labels: [__meta_kubernetes_pod_phase]
        regex: Succeeded|Failed
        action: drop
      - source_labels: [__meta_kubernetes_pod_node_name]
        target_label: node
  - job_name: gpushare-extender # of extender.yaml, extender-tls.yaml or one of the two gpu-scheduler.yaml
    scheme: https
    honor_labels: true
    authorization:
      credentials_file: {TOKEN}
    tls_config:
      insecure_skip_verify: true # it makes its certificate itself; --metrics-tls-cert changes that
    kubernetes_sd_configs:
      - role: pod
        namespaces: {{names: [{NAMESPACE}]}} # with deploy/keti: {KETI}, where it needs the first two rights, too
    relabel_configs:
      - source_labels: [__meta_kubernetes_pod_label_component, __meta_kubernetes_pod_container_port_name]
        regex: ({_EXTENDER});metrics
        action: keep
      - source_labels: [__meta_kubernetes_pod_phase]
        regex: Succeeded|Failed
        action: drop
"""
POD_MONITOR: Final = f"""\
# For the Prometheus Operator: scrape every node part of gpushare, and the extender. If your Prometheus selects monitors
# by label, add that label here. It reads with the token of the account below, which may do nothing else: its
# ClusterRole is in view-rbac.yaml.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: gpushare-metrics
  namespace: {NAMESPACE}
  labels: {{app: gpushare, component: gpushare-monitoring}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: gpushare-metrics
  labels: {{app: gpushare, component: gpushare-monitoring}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: gpushare-metrics
subjects:
  - kind: ServiceAccount
    name: gpushare-metrics
    namespace: {NAMESPACE}
---
apiVersion: v1
kind: Secret
metadata:
  name: gpushare-metrics-token
  namespace: {NAMESPACE}
  labels: {{app: gpushare, component: gpushare-monitoring}}
  annotations: {{kubernetes.io/service-account.name: gpushare-metrics}}
type: kubernetes.io/service-account-token # Kubernetes fills it in
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: gpushare-node
  namespace: {NAMESPACE}
  labels: {{app: gpushare, component: gpushare-monitoring}}
spec:
  namespaceSelector: {{matchNames: [{NAMESPACE}, {KETI}]}}
  selector:
    matchLabels: {{app: gpushare}}
    matchExpressions: [{{key: component, operator: In, values: [{", ".join(NODES)}]}}]
  podMetricsEndpoints:
    - port: metrics
      scheme: https
      honorLabels: true # namespace, pod and container are those of the pods that use GPUs
      authorization:
        credentials: {{name: gpushare-metrics-token, key: token}}
      tlsConfig:
        insecureSkipVerify: true # each node makes its certificate itself
      relabelings:
        - {{action: replace, targetLabel: job, replacement: gpushare-node}}
        - {{action: replace, sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}}
        # Else figures of a shared GPU would seem to be of the pod that exports them.
        - {{action: labeldrop, regex: namespace|pod|container|endpoint}}
---
# The extender of extender.yaml, extender-tls.yaml or one of the two gpu-scheduler.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: gpushare-extender
  namespace: {NAMESPACE}
  labels: {{app: gpushare, component: gpushare-monitoring}}
spec:
  namespaceSelector: {{matchNames: [{NAMESPACE}, {KETI}]}}
  selector:
    matchLabels: {{app: gpushare}}
    matchExpressions: [{{key: component, operator: In, values: [{", ".join(EXTENDERS)}]}}]
  podMetricsEndpoints:
    - port: metrics
      scheme: https
      honorLabels: true
      authorization:
        credentials: {{name: gpushare-metrics-token, key: token}}
      tlsConfig:
        insecureSkipVerify: true # it makes its certificate itself
      relabelings:
        - {{action: replace, targetLabel: job, replacement: gpushare-extender}}
        - {{action: labeldrop, regex: namespace|pod|container|endpoint}}
"""
FILES: Final = {
    "scrape-config.yaml": SCRAPE_CONFIG,
    "podmonitor.yaml": POD_MONITOR,
}
