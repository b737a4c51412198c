"""The node part: it is ready, and kubelet offers what it sells.

The *allocatable* amount counts: the capacity stays although every GPU is unhealthy.
"""

from typing import Final, NamedTuple

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects, units
from gpushare.core.facts.model import Gpu, NodeFacts, Pin
from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict

PART: Final = "device-plugin"  # its word in the labels of NVIDIA's operator
LONGEST: Final = 200  # characters of what the node part says

NOT_ASKED: Final = "the API server was not asked yet"
NOT_READ: Final = "this node's object could not be read: {why}"
NO_NODE: Final = "the API server has no such node"
SEE_NODE: Final = "kubectl get node NODE; may this pod's account list nodes?"
NOT_WANTED: Final = "no node part here: label {label}={value}"
OF_OTHERS: Final = "{offer}, sold by another device plugin"
NO_ANSWER: Final = "the node part does not answer: {why}"
SEE_PART: Final = "kubectl describe pod and kubectl logs of gpushare-node or gpushare-nvidia on this node"
NOT_READY: Final = "the node part is not ready: {text}"
SAYS_NOTHING: Final = "the node has no GPUs in its annotation gpushare.io/gpus"
ALL_UNHEALTHY: Final = "no GPU is healthy: {gpus}"
SEE_GPUS: Final = "on the node: nvidia-smi, and dmesg for Xid; kubectl get gpunodes NODE -o yaml"
NOT_OFFERED: Final = "allocatable {resource} is 0: kubelet does not offer it, or all of it is unhealthy"
SEE_KUBELET: Final = "kubectl describe node NODE; is kubelet up, and does it reach the API server?"


class Answered(NamedTuple):
    """What /readyz of the node part said. `status` 0: nobody answered, and why."""

    status: int
    text: str


def judged(answered: Answered, node: objects.Node | None, failure: str) -> Verdict:
    """`failure`: why the node's object is not known."""
    if node is None and failure == NOT_ASKED:
        return verdict.waiting(NOT_ASKED)
    if node is None:
        return verdict.failed(NOT_READ.format(why=failure or NO_NODE), SEE_NODE)
    label = f"{names.DEPLOY_PREFIX}{PART}"
    wanted = (node.metadata.labels or {}).get(label, "")
    if wanted == "false":
        return verdict.skipped(NOT_WANTED.format(label=label, value=wanted))
    if not answered.status:
        others = "" if names.NODE_GPUS in (node.metadata.annotations or {}) else _offered_by_others(node)
        if others:
            return verdict.passed(OF_OTHERS.format(offer=others))
        return verdict.failed(NO_ANSWER.format(why=answered.text), SEE_PART)
    if answered.status != 200:
        return verdict.failed(NOT_READY.format(text=" ".join(answered.text[:LONGEST].split())), SEE_PART)
    return _offer(node, node_gpus.read(node, frozenset()))


def resources(facts: NodeFacts) -> tuple[str, ...]:
    """What a node sells, the one to try first."""
    if facts.pin is Pin.NVIDIA:
        return tuple(sold.resource for sold in facts.sold)
    if facts.only_mps:
        return (names.MPS_GPU,)
    return (names.GPU_MEM,)


def _offer(node: objects.Node, facts: NodeFacts | None) -> Verdict:
    if facts is None:
        return verdict.failed(SAYS_NOTHING, SEE_PART)
    unhealthy = "; ".join(_unhealthy(gpu) for gpu in facts.gpus if not gpu.healthy)
    if not any(gpu.healthy for gpu in facts.gpus):
        return verdict.failed(ALL_UNHEALTHY.format(gpus=unhealthy), SEE_GPUS)
    sold = resources(facts)
    offered = [(resource, amount) for resource in sold if (amount := units.number(node.status.allocatable, resource))]
    if not offered:
        return verdict.failed(NOT_OFFERED.format(resource=" and ".join(sold)), SEE_KUBELET)
    return verdict.passed(", ".join(f"{resource}: {amount}" for resource, amount in offered), unhealthy)


def _unhealthy(gpu: Gpu) -> str:
    return f"GPU {gpu.index} {gpu.uuid} unhealthy" + (f": {gpu.why}" if gpu.why else "")


def _offered_by_others(node: objects.Node) -> str:
    sold = {name: units.number(node.status.allocatable, name) for name in node.status.allocatable or ()}
    theirs = {n: a for n, a in sold.items() if n in names.NVIDIA_GPUS or n.startswith(names.NVIDIA_SLICES)}
    return ", ".join(f"{name}: {amount}" for name, amount in sorted(theirs.items()) if amount)
