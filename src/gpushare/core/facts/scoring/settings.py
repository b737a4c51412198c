"""What an admin says about placing pods, beside the name of a policy: the keys of KETI's policy ConfigMaps, as data.

`KETI_SHORT` are the defaults where only `gpu-scheduler-configmap` exists (2 keys), `KETI_LONG` those of
`gpu-scheduler-policy` (11 keys). Without `--policy-namespace` nothing of this is in force: `NEUTRAL`.
"""

from typing import Literal

from gpushare.core.facts.model import Data

Prefer = Literal["spread", "binpack"]


class Settings(Data, frozen=True):
    node_weight: float | None = None  # of the score of a node; None: what the policy says
    gpu_weight: float | None = None  # of the score of its GPUs
    nvlink_percent: int = 0  # so much more two linked GPUs are worth, for a pod that asks for several
    prefer: Prefer = "spread"  # binpack: GPUs in use before idle ones
    reservation: bool = False  # nodes with the annotation `reserved` take no new pods
    reschedules: bool = False  # pods are evicted from GPUs that are unhealthy, or over-used by a neighbour
    avoids_nvlink: bool = False  # a pod that asks for one GPU leaves linked GPUs to others
    multi_node: bool = False  # cannot be done: a pod runs on one node
    prefers_other_nodes: bool = False  # pods that ask for no GPU prefer nodes that have none
    prefers_many_gpus: bool = False  # nodes with several GPUs are worth more
    lowest_first: bool = False  # of the nodes that fit, the one with the lowest score
    second_best: bool = False  # of the nodes that fit, the one after the best


NEUTRAL = Settings()
KETI_SHORT = Settings(node_weight=0.3, gpu_weight=0.7, reschedules=True)
KETI_LONG = Settings(
    node_weight=0.4, gpu_weight=0.6, nvlink_percent=10, reschedules=True, prefers_other_nodes=True,
    prefers_many_gpus=True,
)  # fmt: skip
