"""Every name that two components, or ours and one of another project, must agree on.

Nothing here is computed. Every key is explained in this file, and only here.
"""

from typing import Final

# Resources a container may ask for.
GPU_MEM: Final = "aliyun.com/gpu-mem"
GPU_COUNT: Final = "aliyun.com/gpu-count"  # a limit: whole GPUs; a pod annotation or label: split over that many
NVIDIA_GPU: Final = "nvidia.com/gpu"  # whole GPUs, on nodes that sell them under this name too
MPS_GPU: Final = "keti.com/mpsgpu"  # on each of so many GPUs one slot, and memory

# Admission pins a container that asks for one of these; one that asks for nvidia.com/gpu only where an admin says so:
# such a pod cannot be told from one for NVIDIA's plugin.
PINNED: Final = (GPU_MEM, GPU_COUNT, MPS_GPU)

# NVIDIA's device plugin serves pods that ask for one of these; deploy/unasked.yaml has the same list.
NVIDIA_GPUS: Final = (NVIDIA_GPU, "nvidia.com/gpu.shared")
NVIDIA_SLICES: Final = "nvidia.com/mig-"  # how the names of slices begin: there is one for each size

# Pod annotations a user may write.
MEMORY_UNIT: Final = "gpushare.io/memory-unit"
POLICY: Final = "gpushare.io/policy"
SLOT_MEMORY: Final = ("GPUrequest", "GPUlimits")  # bytes on each GPU that come with an MPS slot; the larger counts
MPS_THREADS: Final = "gpushare.io/mps-threads"  # percent of the threads of a GPU that an MPS client may use
PRIORITY: Final = "priority"  # KETI's: L or LOW, M, H or HIGH, I
NODE_NAME: Final = "nodeName"  # KETI's: only this node, for pods of this scheduler:
GPU_SCHEDULER: Final = "gpu-scheduler"

# Pod annotations of Aliyun's gpushare. All its versions use these names.
ALIYUN_IDX: Final = "ALIYUN_COM_GPU_MEM_IDX"
ALIYUN_POD: Final = "ALIYUN_COM_GPU_MEM_POD"
ALIYUN_DEV: Final = "ALIYUN_COM_GPU_MEM_DEV"
ALIYUN_ASSIGNED: Final = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ALIYUN_ASSUME_TIME: Final = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
ALLOCATION: Final = "scheduler.framework.gpushare.allocation"

# Pod annotations of our own.
VISIBLE_PREFIX: Final = "gpushare.io/visible-"
EXTENDER: Final = "gpushare.io/extender"
WOKEN: Final = "gpushare.io/woken"
KEPT: Final = "gpushare.io/kept"  # the GPUs that are kept for a pod that has waited too long
MPS_LIMIT_PREFIX: Final = "gpushare.io/mps-limit-"  # memory limits of an MPS client, by ordinal of what it sees
UUID: Final = "UUID"  # KETI's: all GPUs of a pod with MPS shares, comma-separated

# The env a directly pinned container learns its GPUs from.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"

# What an MPS client needs: the folder of the daemon's pipes, its limits, and the shared memory of the node.
MPS_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
MPS_LIMIT: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
MPS_PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_PIPE_FOLDER: Final = "/tmp/nvidia-mps"  # on the node, and in containers; KETI's and CUDA's own default
SHM_FOLDER: Final = "/dev/shm"
MPS_STATUS_FOLDER: Final = "/run/nvidia/mps"  # on the node; where `gpushare mps` says how it is

# The node annotation that publishes a node's GPUs.
NODE_GPUS: Final = "gpushare.io/gpus"

# A node annotation of KETI's: if it is not empty, and the policy permits reservations, no new pod goes there.
RESERVED: Final = "reserved"

# KETI's policy ConfigMaps. Keys of the second one win.
POLICY_CONFIGMAPS: Final = ("gpu-scheduler-configmap", "gpu-scheduler-policy")

# Labels of nodes with NVIDIA's GPUs. Which of them node-feature-discovery writes depends on its settings.
PCI_LABELS: Final = (
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)

# What the operator says of GPU nodes. The values of the second kind are "true", or whatever a person wrote.
GPU_PRESENT: Final = "nvidia.com/gpu.present"  # "true"; "false" after the GPUs were taken out
DEPLOY_PREFIX: Final = "nvidia.com/gpu.deploy."  # one label for each part of NVIDIA's operator
DEPLOY_NOTHING: Final = f"{DEPLOY_PREFIX}operands"  # "false", written by a person: nothing is deployed there
DISCOVERED: Final = f"{DEPLOY_PREFIX}gpu-feature-discovery"  # not "true": the node part says nothing of its GPUs
SHARED: Final = "gpushare"  # which node part runs there:
SHARED_MEMORY: Final = "true"  # shares of GPUs
SHARED_GPUS: Final = "gpus"  # whole GPUs or replicas
GPU_TAINT: Final = ("nvidia.com/gpu", "present", "NoSchedule")
TAINTED: Final = "gpushare.io/tainted"  # a node annotation: the taint is ours, and goes with the policy

# Which of our programs owns a label or annotation of a node. An apply without it removes it, and nothing of others.
OPERATOR_MANAGER: Final = "gpushare-operator"
FINDER_MANAGER: Final = "gpushare-finder"
DISCOVERY_MANAGER: Final = "gpushare-discovery"
VALIDATOR_MANAGER: Final = "gpushare-validator"

# A label of all that the operator made, and of its pods.
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "gpushare-operator")

PART_OF: Final = "gpushare.io/component"  # a label beside it: which component, as the policy's status has it
WANTED: Final = "gpushare.io/wanted"  # an annotation of what the operator made: a digest of what it wanted
CLEAN_UP: Final = "gpushare.io/clean-up"  # the finalizer of a policy: nodes still have labels of ours

# NVIDIA's: where a node's checks leave one file each when they have passed, and programs wait for these files.
VALIDATIONS_FOLDER: Final = "/run/nvidia/validations"

# The node annotation in which `gpushare validate` says how each check went (core/annotations/validation.py).
VALIDATION: Final = "gpushare.io/validation"

# ConfigMaps that list a node's unhealthy GPUs by index.
UNHEALTHY_NAMESPACE: Final = "kube-system"
UNHEALTHY_PREFIX: Final = "unhealthy-gpu-"
UNHEALTHY_KEY: Final = "gpus"

MIB: Final = "MiB"
GIB: Final = "GiB"
UNITS: Final = (MIB, GIB)

# The component named in our events.
COMPONENT: Final = "gpushare"

# Where the extender answers: the path of its URL. Aliyun's has the same.
EXTENDER_PATH: Final = "/gpushare-scheduler"

# A pod annotation of `gpushare install-scheduler`: the pod is only there so that kube-scheduler asks about it. The
# extender refuses it everywhere, with this sentence, which kube-scheduler writes into the pod's condition.
ONLY_ASKED: Final = "gpushare.io/only-asked"
ASKED: Final = "node(s) that gpushare was only asked about"
