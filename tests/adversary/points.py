"""Six promises that were broken once, each as a story in the adversary's own deeds.

Told by `test_points` as they stand, and by `test_mutants` with the mend taken out. The random lives find the same;
these say plainly what it was.
"""

import random

from tests.adversary.server import Object
from tests.adversary.world import Deed, Story

QUIET: Object = {"deaf": True, "patient": True}  # a scheduler that hears of nothing but touched pods
LARGE = {f"n{n}": {"gpus": [16000 + 7 * i + n % 5 for i in range(8)]} for n in range(12)}
DIRECT = {name: node | {"pin": "direct"} for name, node in LARGE.items()}


def _too_large_an_init() -> Story:
    """4 containers and an init container that fits no GPU now, on 12 direct nodes whose GPUs all have a bit free."""
    fill = {"direct": True, "containers": {f"c{i}": 11000 + 3 * i for i in range(8)}}
    deeds: list[Deed] = [("node", DIRECT)]
    deeds += [("pod", {"name": f"fill-{n}", **fill}) for n in range(len(DIRECT))]
    hard = {"containers": {f"c{i}": 500 + i for i in range(4)}, "init": {"first": 6000}}
    return Story(QUIET, [*deeds, ("wait", 20), ("pod", {"name": "hard", "direct": True, **hard}), ("wait", 2)])


def _does_not_pack() -> Story:
    """33 containers, together a little less than a node has, that no way of placing them fits."""
    dice, middle = random.Random(0), 16000 * 8 // 33
    hard = {f"c{i}": dice.randint(middle - 1500, middle + 900) for i in range(33)}
    return Story(QUIET, [("node", LARGE), ("pod", {"name": "hard", "containers": hard}), ("wait", 2)])


def _unit(before: str, after: str, first: int, second: int, pin: str = "plugin") -> Story:
    """A node counts otherwise from now on, under a running pod."""
    direct = pin == "direct"
    return Story({}, [
        ("node", {"n0": {"gpus": [16276], "unit": before, "pin": pin}}),
        ("pod", {"name": "first", "direct": direct, "containers": {"main": first}}), ("wait", 3),
        ("node", {"n0": {"unit": after}}), ("wait", 2),
        ("pod", {"name": "second", "direct": direct, "containers": {"main": second}}), ("wait", 3),
    ])  # fmt: skip


def _restore(bump: bool) -> Story:
    """`back` is bound, etcd is copied, `back` is deleted and `gated` gets its GPU; then etcd is put back."""
    return Story({}, [
        ("node", {"n0": {"gpus": [8000]}}), ("pod", {"name": "back", "containers": {"main": 8000}}), ("wait", 3),
        ("snapshot", None), ("delete", "back"), ("wait", 3),
        ("pod", {"name": "gated", "containers": {"main": 4000}}), ("wait", 3),
        ("restore", {"bump": bump}),
        ("pod", {"name": "new", "containers": {"main": 4000}}), ("wait", 20), ("delete", "back"),
    ])  # fmt: skip


def _unbound_again(bump: bool) -> Story:
    """A pod that was seen bound is not bound in the older copy: it is to be bound again."""
    return Story({}, [
        ("node", {"n0": {"gpus": [8000]}}), ("node", {"n0": {"cordon": True}}),
        ("pod", {"name": "again", "containers": {"main": 4000}}), ("wait", 2), ("snapshot", None),
        ("node", {"n0": {"cordon": False}}), ("wait", 12), ("restore", {"bump": bump}),
        ("node", {"n0": {"cordon": False}}), ("wait", 20),
    ])  # fmt: skip


def _tenant(notes: Object, pod: Object) -> Story:
    """A tenant writes an annotation of his own to his own running pod."""
    return Story({}, [
        ("node", {"n0": {"gpus": [8000, 8000], "pin": "direct"}}),
        ("pod", {"name": "his", "direct": True, **pod}), ("wait", 3), ("annotate", {"pod": "his", **notes}),
        ("pod", {"name": "other", "direct": True, "containers": {"main": 5000}}), ("wait", 3),
    ])  # fmt: skip


def _by_hand() -> Story:
    """Bound by hand to a direct node it sees no GPU, so that it counts on none."""
    node: list[Deed] = [("node", {"n0": {"gpus": [8000, 8000], "pin": "direct"}})]
    return Story({}, [*node, ("pod", {"name": "hand", "direct": True, "node": "n0", "containers": {"main": 8000}})])


def _slots() -> Story:
    """Memory is free, but no slot: the second pod waits until the first has ended."""
    share: Object = {"direct": True, "containers": {"main": {"mps": 1}}, "annotations": {"GPUrequest": "100Mi"}}
    return Story({}, [
        ("node", {"n0": {"gpus": [8000], "pin": "direct", "slots": 1}, "n1": {"gpus": [8000], "pin": "direct"}}),
        ("pod", {"name": "first", **share}), ("wait", 3), ("pod", {"name": "second", **share}), ("wait", 15),
        ("delete", "first"), ("wait", 8),
    ])  # fmt: skip


def _kept_off(rule: Object) -> Story:
    """20 older pods that may not go to the node whose GPU gets well stand before the one that may."""
    deeds: list[Deed] = [("node", {"n0": {"gpus": [8000]}, "n1": {"gpus": [4000, 4000]}}), ("configmap", {"n0": "0"})]
    deeds += [("pod", {"name": f"old-{i}", "containers": {"main": 6000}, **rule}) for i in range(20)]
    deeds += [("wait", 2), ("pod", {"name": "good", "containers": {"main": 6000}}), ("wait", 3)]
    return Story(QUIET, [*deeds, ("configmap", {"n0": None}), ("wait", 8)])


def _no_word(rule: Object) -> Story:
    """There is room, but not where this pod may go: it deserves a word about the nodes it may use."""
    return Story({}, [
        ("node", {"n0": {"gpus": [8000], "labels": {"pool": "red"}}, "n1": {"gpus": [8000], **rule}}),
        ("pod", {"name": "full", "containers": {"main": 7000}, "selector": {"pool": "red"}}), ("wait", 3),
        ("pod", {"name": "waits", "containers": {"main": 6000}, "affinity": NOT_BLUE}), ("wait", 15),
    ])  # fmt: skip


NOT_BLUE = [{"key": "pool", "operator": "NotIn", "values": ["blue"]}]
SHARE: Object = {"containers": {"main": 3000}}
WHOLE: Object = {"containers": {"main": {"count": 1}}}

STORIES: dict[str, Story] = {
    "1 an init container that fits no GPU": _too_large_an_init(),
    "1 containers that just do not pack": _does_not_pack(),
    "2 GiB become MiB": _unit("GiB", "MiB", 15, 16000),
    "2 GiB become MiB on a direct node": _unit("GiB", "MiB", 15, 16000, "direct"),
    "2 MiB become GiB": _unit("MiB", "GiB", 3500, 10),
    "3 revisions go back": _restore(bump=False),
    "3 revisions are moved on": _restore(bump=True),
    "3 unbound again, revisions go back": _unbound_again(bump=False),
    "3 unbound again, revisions are moved on": _unbound_again(bump=True),
    "4 a policy nobody knows": _tenant({"annotations": {"gpushare.io/policy": "x"}}, WHOLE),
    "4 an annotation that splits": _tenant({"annotations": {"aliyun.com/gpu-count": "2"}}, SHARE),
    "4 a label that splits": _tenant({"labels": {"aliyun.com/gpu-count": "2"}}, SHARE),
    "4 a unit nobody knows": _tenant({"annotations": {"gpushare.io/memory-unit": "x"}}, SHARE),
    "4 bound by hand": _by_hand(),
    "5 slots run out while memory is free": _slots(),
    "8 kept off by a nodeSelector": _kept_off({"selector": {"pool": "none"}}),
    "8 kept off by affinity": _kept_off({"affinity": [{"key": "pool", "operator": "Exists"}]}),
    "8 kept off by a rule of the scheduler's own": _kept_off({"hidden": ["n0"]}),
    "9 kept off by affinity": _no_word({"labels": {"pool": "blue"}}),
    "9 kept off by a taint": _no_word({"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}),
    "9 kept off by a cordon": _no_word({"cordon": True}),
}
