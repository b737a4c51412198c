"""What `--help` says: one page each, which fits a terminal of 80 columns and 24 lines.

`{program}` is the name it was called by: gpushare, or kubectl with a plugin's name.
"""

from typing import Final

from gpushare.core.facts import policies

ALL: Final = """\
usage: gpushare COMMAND [options]        share GPUs on Kubernetes by GPU memory
Look and try
  inspect [NODE...]   GPU memory by node, GPU, pod    (kubectl inspect gpushare)
  why POD             why a pod waits, where it runs  (kubectl gpushare why)
  top                 what each GPU does now          (kubectl gpushare top)
  dashboard           all of this in a browser, and what would fit where
  validate [NODE...]  whether driver, toolkit, node part and a real pod work
  snapshot, replay    a cluster as a file; which policy places its pods best
  demo                all of it on this machine, without a cluster, in a minute
Run in a cluster (the manifests in deploy/ do this for you)
  extender            tells kube-scheduler which node and which GPU
  node                publishes a node's GPUs, and pins containers to them
  device-plugin       the same, as a replacement for Aliyun's device plugin
  collector           only measures a node's GPUs, beside gpushare node
  mps                 keeps NVIDIA's MPS daemon of a node running
  webhook             admission: pins new pods, and refuses what can never run
  finder              labels its node if it has an NVIDIA GPU
  operator            keeps all of this running, as a ClusterPolicy asks
  install-scheduler   tells this control plane's kube-scheduler of the extender
Options of every command, anywhere on the line
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
  -h, --help, --version
Exit codes: 0 done or fits, 1 no, 2 bad input, 3 the cluster could not be asked"""

PLUGIN: Final = """\
usage: kubectl gpushare COMMAND [options]   share GPUs on Kubernetes by memory
  inspect [NODE...]   GPU memory by node, GPU, pod    (kubectl inspect gpushare)
  why POD             why a pod waits, where it runs
  top                 what GPUs do now, and who uses more than it asked
Options of every command, after it
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
  -h, --help, --version
Exit codes: 0 done or fits, 1 no, 2 bad input, 3 the cluster could not be asked"""

INSPECT: Final = """\
usage: {program} [NODE...] [-d] [-o wide|json|yaml] [-w]
Shows how much memory of each GPU is given out and, on a terminal, who waits.
  NODE                only these nodes
  -d, --details       the pods on each node, too
  -o, --output FORMAT wide: more columns and the waiting pods; json, yaml: for
                      programs
  -w, --watch         keep running, and redraw when something changes
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  {program}
  {program} -d gpu-a gpu-b
  {program} -o json | jq '.nodes[] | {{name, usedGPU}}'
Exit codes: 0 done, 2 bad input, 3 the cluster could not be asked"""

WHY: Final = """\
usage: {program} POD [-n NAMESPACE] | -f FILE      [-o wide|json|yaml]
Says why a pod is Pending, what would make it fit, or where it runs.
  POD                 name, namespace/name, or pod/name as kubectl prints it
  -n, --namespace NS  default: the context's namespace
  -f, --filename FILE ask before submitting: Pod, Deployment, Job...; - is stdin
  -o, --output FORMAT wide: every node and GPU; json, yaml: for programs
  --policy NAME       the extender's policy, if it is not the default; a pod's
                      own gpushare.io/policy wins (extender --help-policies)
  --extender URL      ask a running extender instead of computing it here
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  {program} llm -n prod
  {program} -f deploy.yaml && kubectl apply -f deploy.yaml
Exit codes: 0 fits or runs, 1 does not fit, 2 bad input, 3 could not ask"""

TOP: Final = """\
usage: {program} [--sort ORDER] [-o json|yaml]
Shows what each GPU does now, and the pods on them, those that use more than
they asked for first. On a terminal it goes on until q or Ctrl-C, and keys
change the order. Piped, it prints once. Unknown is "-", never 0.
  --sort ORDER        used (default), busy, granted, free, idle (granted and not
                      used), over, temperature, watts or name. The key of each
                      is its first letter
  -o, --output FORMAT json, yaml: for programs. Amounts are in MiB
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  {program}
  {program} --sort idle | head
  {program} -o json | jq '.pods[] | select(.over > 0)'
Nodes publish what their GPUs do with gpushare node: docs/metrics.md
Exit codes: 0 done, 2 bad input, 3 the cluster could not be asked"""

DEMO: Final = """\
usage: gpushare demo [--once]
Runs gpushare on this machine, without a cluster. Five nodes, nine GPUs and
Kubernetes itself are simulated; extender, gpushare node and device plugins are
the real programs. On a terminal it keeps running after the last step, so that
you can try it, until Ctrl-C.
  --once              end after the last step, as it does without a terminal
  --color auto|always|never, --debug
Examples
  gpushare demo
  gpushare demo --once && echo all checks ok
Exit codes: 0 done, 1 a check failed, 2 bad input, 130 Ctrl-C"""

EXTENDER: Final = f"""\
usage: gpushare extender [options]
Answers kube-scheduler's choose (or filter and prioritize), bind and preempt
calls for pods that ask for GPU memory, whole GPUs or MPS shares.
  --port N [N ...], --listen ADDRESS
                        12345; 127.0.0.1, else use TLS. The variable PORT wins
  --policy NAME         which GPU of those with room (default {policies.DEFAULT}). A pod's
                        own gpushare.io/policy wins. All names: --help-policies
  --policy-namespace NS where KETI's policy ConfigMaps are (default: read none)
  --memory-unit UNIT    MiB or GiB, of pods that name none (default: the node's)
  --patience TIME       GPUs are kept for pods that wait longer (10m; 0: never)
  --tls-cert FILE --tls-key FILE --client-ca FILE
                        HTTPS, only for clients with a certificate of that CA
  --metrics-listen HOST:PORT, --metrics-tls-cert FILE, --metrics-tls-key FILE,
  --metrics-client-ca FILE
                        for Prometheus (default off); see node --help-metrics
  --log-level LEVEL     debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  gpushare extender --port 12345 32766 --policy spread --patience 90s
Exit codes: 0 after SIGTERM, 2 bad input, 3 the cluster could not be asked"""

_POLICIES = "\n".join(f"  {policy.name:<16}{policy.help}" for policy in policies.POLICIES.values())

EXTENDER_POLICIES: Final = f"""\
usage: gpushare extender --policy NAME            all other options: --help
Of all GPUs with room the policy chooses one, for pods that name none in their
annotation gpushare.io/policy. Default: {policies.DEFAULT}.
{_POLICIES}
The first three look at GPUs alone, keti and metric also at what GPUs do, others
also at CPU and memory of nodes. fgd and vrc learn which pods come. More in
docs/policies.md; gpushare replay compares them on pods of yours.
Examples
  gpushare extender --policy vrc
  gpushare why -f pod.yaml --policy fgd
Exit codes: 0 after SIGTERM, 2 bad input, 3 the cluster could not be asked"""

NODE: Final = """\
usage: gpushare node [options]             metrics and over-use: --help-metrics
Publishes the GPUs of this node and keeps that up to date. Where containers get
their GPUs from a device plugin, it serves that plugin, too.
  --node-name NAME    the node it runs on; default NODE_NAME
  --sell WHAT         shares of GPUs (default), or gpus: in place of NVIDIA's
                      device plugin (gpushare node --sell=gpus --help)
  --pin HOW           how containers get their GPUs. direct: from the binding
                      that chose them; plugin: from a device plugin; auto
                      (default): direct where admission is gpushare's, too
  --memory-unit UNIT  MiB or GiB (default): the unit of amounts on this node
  --reserve MIB       memory of each GPU that is not given out (default 0)
  --mps-slots N, --mps-status FOLDER
                      sell N MPS shares (keti.com/mpsgpu) of each GPU: 0 to 48,
                      default 0; with FOLDER only those, while its daemon works
  --nvidia-gpu whole  sell whole GPUs as nvidia.com/gpu, too; direct pin only
  --discovery HOW     NVIDIA's GPU labels: off (default), labels, nodefeature
                      (by node-feature-discovery), auto (that, where it runs)
  --fail-on-init-error=false   a node without a driver is no error: wait for one
  --listen ADDRESS, --port N   /healthz, /readyz, /metrics (127.0.0.1, 12346)
  --log-level LEVEL   debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Example: gpushare node --node-name gpu-a --memory-unit MiB
Exit codes: 0 after SIGTERM, 2 bad input, 3 no driver, kubelet or cluster"""

NODE_GPUS: Final = """\
usage: gpushare node --sell=gpus [options] metrics and over-use: --help-metrics
Sells the GPUs of this node, or replicas of them, as nvidia.com/gpu, in place of
NVIDIA's device plugin. Its flags, variables and config: docs/sell-gpus.md.
  --node-name NAME    the node it runs on; default NODE_NAME
  --config-dir FOLDER configs, chosen by the node's label
                      nvidia.com/device-plugin.config; or --config-file FILE
  --default-config NAME, --fallback-strategies LIST
                      without that label (default named,single; or empty)
  --device-list-strategy LIST
                      how containers get GPUs: envvar (default), volume-mounts,
                      cdi-annotations, cdi-cri
  --device-id-strategy uuid|index, --pass-device-specs,
  --shared-devices-allocation-policy distributed|packed (of the next replica)
  --driver-root PATH, --dev-root PATH, --driver-root-ctr-path PATH,
  --nvidia-cdi-hook-path PATH, --cdi-annotation-prefix PREFIX,
  --kubelet-socket PATH, --mig-strategy none, --fail-on-init-error=false,
  --mps-status FOLDER (where gpushare mps reports: MPS replicas need it)
  --discovery HOW, --listen ADDRESS, --port N, --log-level LEVEL
                      as without --sell=gpus
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  gpushare node --sell=gpus --node-name gpu-b --config-file shared.yaml
Exit codes: 0 after SIGTERM, 2 bad input, 3 no driver, kubelet or cluster"""

NODE_METRICS: Final = """\
usage: {program} [options]          what GPUs do, and who is told
Samples the GPUs of this node, and says which container uses how much.
  --sample-seconds N  between two looks at what they do (default 5; 0: none)
  --proc FOLDER       the node's /proc, if the pod has no hostPID: true
  --overuse-tolerance 5%,256MiB
                      allowed above what a container asked for: the larger one
  --overuse-grace N   seconds above it until an event says so (default 60)
  --on-overuse HOW    warn (default), or evict: also evict the pod
  --metrics-listen HOST:PORT, or off
                      for Prometheus (default POD_IP:9400, else 127.0.0.1:9400).
                      Not on loopback: HTTPS, for tokens that may get /metrics
  --metrics-tls-cert FILE --metrics-tls-key FILE    else it makes a certificate
  --metrics-client-ca FILE
                      for certificates of this authority instead of tokens
  --dcgm-names WHEN   NVIDIA's names: auto (not beside its exporter), on, off
  --hostname-label L  Hostname (default) or hostname, beside those names
  --counters FILE     which of them: a counters file of dcgm-exporter
  --influx URL, --influx-interval N
                      write it to InfluxDB every N seconds (default 10), with
                      INFLUX_USER and INFLUX_PASSWORD, or INFLUX_TOKEN, _ORG,
                      _BUCKET of the environment, or files: docs/influxdb.md
All other options: {program} --help
Exit codes: 0 after SIGTERM, 2 bad input, 3 no driver, kubelet or cluster"""

DEVICE_PLUGIN: Final = """\
usage: gpushare device-plugin [options]    metrics and over-use: --help-metrics
Replaces Aliyun's device plugin: does what gpushare node --pin plugin does.
  --node-name NAME    the node it runs on; default NODE_NAME
  --memory-unit UNIT  GiB (default) or MiB
  --reserve MIB       memory of each GPU that is not given out (default 0)
  --visible-devices HOW
                      uuid (default) or index, in NVIDIA_VISIBLE_DEVICES
  --unhealthy-configmap
                      also list unhealthy GPUs in the ConfigMap that Aliyun's
                      extender reads: kube-system/unhealthy-gpu-NODE
  --listen ADDRESS, --port N
                      for /healthz, /readyz, /metrics (127.0.0.1, 12346)
  --log-level LEVEL   debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
These flags of Aliyun's plugin are accepted and have no effect:
  --health-check, --mps, --query-kubelet, --kubelet-address, --kubelet-port,
  --client-cert, --client-key, --token, --timeout, --mps-pipe, those of its log
Examples
  gpushare device-plugin -logtostderr --v=5 --memory-unit=MiB
Exit codes: 0 after SIGTERM, 2 bad input, 3 no driver, kubelet or cluster"""

COLLECTOR: Final = """\
usage: gpushare collector [options]        metrics and over-use: --help-metrics
Measures what the GPUs of this node do, and tells everybody: the GPUNode,
Prometheus, InfluxDB, events about over-use. It sells nothing. It runs beside
gpushare node --sample-seconds=0, which says on the node object what is sold.
  --node-name NAME    the node it runs on; default NODE_NAME
  --fail-on-init-error=false   a node without a driver is no error: wait for one
  --listen ADDRESS, --port N
                      for /healthz, /readyz, /metrics (127.0.0.1, 12350)
  --log-level LEVEL   debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
All other options: gpushare collector --help-metrics
Examples
  gpushare collector --node-name gpu-a --sample-seconds 10
Exit codes: 0 after SIGTERM, 2 bad input, 3 no driver or cluster"""

MPS: Final = """\
usage: gpushare mps [options]
Keeps NVIDIA's MPS daemon of this node running, for pods with MPS shares: sets
the compute mode of all GPUs to EXCLUSIVE_PROCESS, starts the daemon, asks it
every 5 seconds, starts it again, and tells its clients. Pipes in
/tmp/nvidia-mps, reports and logs in /run/nvidia/mps.
  --node-name NAME    the node it runs on; default NODE_NAME
  --restore           only put back the compute modes that a supervisor which
                      was killed has left, and end
  --fail-on-init-error=false   a node without a driver is no error: wait for one
  --listen ADDRESS, --port N
                      for /healthz, /readyz, /metrics (127.0.0.1, 12349)
  --log-level LEVEL   debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  gpushare mps --node-name gpu-a
  gpushare mps --restore
Exit codes: 0 after SIGTERM, 2 bad input, 3 no driver, program or right"""

WEBHOOK: Final = """\
usage: gpushare webhook [options]
Admission where there are no admission policies: pins new pods that ask for
GPUs, guards gpushare's annotations, and refuses what can never run.
  --port N, --listen ADDRESS
                        HTTPS (9443, 0.0.0.0); /healthz, /readyz, /metrics too
  --pin-namespaces WHICH
                        all, or labelled: those with gpushare.io/pin=direct
                        (default all; before Kubernetes 1.28 always labelled)
  --nvidia-gpu WHAT     whole: pin pods that ask for nvidia.com/gpu (off)
  --unasked WHAT        void: containers that ask for no GPU see none (off)
  --scheduler-name NAME pods that ask for shares and name no scheduler get this
                        one: gpu-scheduler beside the cluster's own (off)
  --on-invalid WHAT     pods that can never run: deny (default) or warn
  --on-unplaceable WHAT pods no node here can run: warn (default), deny or off
  --tls-cert FILE --tls-key FILE [--ca-file FILE]
                        a certificate of yours instead of its own; the CA is
                        told to API servers
  --log-level LEVEL     debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  gpushare webhook --kubeconfig ~/.kube/config
Exit codes: 0 after SIGTERM, 2 bad input, 3 the cluster could not be asked"""
