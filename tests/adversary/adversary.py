"""Makes up lives: from a seed a cluster and dozens of deeds, as bad as anybody in a real cluster could do.

Pure: the same seed gives the same story, on every machine. Names are few and reused, so that deeds meet each other.
"""

import random

from gpushare.core.facts.policies import POLICIES
from tests.adversary.server import Object
from tests.adversary.world import Deed, Story

SIZES = (8000, 8192, 12288, 16276, 24576)  # MiB; never so small that MiB and GiB look alike
PACKING = sorted([name for name, policy in POLICIES.items() if policy.packing is not None])
POOLS = ("red", "blue")
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
USER_NOTES: tuple[Object, ...] = (
    {"annotations": {"gpushare.io/policy": "x"}},
    {"annotations": {"gpushare.io/policy": "spread"}},
    {"annotations": {"aliyun.com/gpu-count": "2"}},
    {"annotations": {"aliyun.com/gpu-count": "0"}},
    {"annotations": {"aliyun.com/gpu-count": "many"}},
    {"labels": {"aliyun.com/gpu-count": "2"}},
    {"annotations": {"gpushare.io/memory-unit": "bytes"}},
    {"annotations": {"gpushare.io/memory-unit": "GiB"}},
    {"annotations": {"gpushare.io/memory-unit": "MiB"}},
    {"annotations": {"team.example/note": "hello"}},
    {"annotations": {"GPUrequest": "odd"}},
    {"annotations": {"GPUrequest": "3000Mi"}},
    {"annotations": {"GPUrequest": None}},
)
GUARDED_NOTES: tuple[Object, ...] = (
    {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "0"}},
    {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "77"}},
    {"annotations": {"scheduler.framework.gpushare.allocation": '{"0":{"0":1}}'}},
    {"annotations": {"scheduler.framework.gpushare.allocation": None}},
    {"annotations": {"scheduler.framework.gpushare.allocation": "[[["}},
    {"annotations": {"gpushare.io/visible-0": "GPU-n0-0"}},
    {"annotations": {"gpushare.io/visible-0": ""}},
    {"annotations": {"ALIYUN_COM_GPU_MEM_DEV": "15"}},
    {"annotations": {"ALIYUN_COM_GPU_MEM_DEV": "x"}},
)
INVALID = ("4Gi", "1500m", "9" * 30)


class Adversary:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.pods = 0
        self.node_pins: dict[str, str] = {}
        self.cards: dict[str, list[int]] = {}  # a node that comes back has the GPUs it had
        dice = self.dice
        self.cluster: Object = {
            "policy": dice.choice(["binpack", "binpack", "spread", "keti", "metric"]),
            "unit": dice.choice([None, None, None, None, "MiB"]),
            "verb": dice.choice(["choose", "choose", "filter"]),
            "deaf": dice.random() < 0.5,
            "patient": dice.random() < 0.5,
            "guard": dice.random() < 0.85,
        }
        self.packing = random.Random(f"packing {seed}")  # of its own: so the rest of a story does not depend on it
        if self.packing.random() < 0.4:
            self.cluster["policy"] = self.packing.choice(PACKING)
        self.direct = dice.choice([0.0, 0.5, 0.5, 1.0])  # how many of the nodes, and of the pods, are pinned directly
        self.large = dice.random() < 0.04  # more nodes with more GPUs, no two alike: what is hard to pack is dear there

    def story(self) -> Story:
        dice = self.dice
        nodes = dice.randint(6, 12) if self.large else dice.randint(1, 4)
        deeds: list[Deed] = [("node", {f"n{i}": self.new_node(f"n{i}")}) for i in range(nodes)]
        kinds = [
            (30, self.pod), (12, self.end), (14, self.wait), (8, self.annotate), (10, self.change_node),
            (3, self.by_hand), (5, self.watch), (4, self.restore), (3, self.fault), (2, self.restart),
            (4, self.caller), (4, self.crowd), (40 if self.large else 1, self.hard), (3, self.recovery),
            (4, self.recount),
        ]  # fmt: skip
        weights = [weight * dice.choice([0, 1, 1, 2]) or 1 for weight, _ in kinds]  # every life has a temper of its own
        for _ in range(dice.randint(6, 26)):
            deeds += dice.choices([kind for _, kind in kinds], weights)[0]()
        return Story(self.cluster, deeds)

    # Pods

    def new_pod(self) -> Object:
        dice = self.dice
        self.pods += 1
        pod: Object = {"name": f"p{self.pods}", "direct": dice.random() < self.direct, **self._shape()}
        if dice.random() < 0.25:
            pod["priority"] = dice.choice([0, 5, 10])
        if dice.random() < 0.1:
            pod["unit"] = dice.choice(["MiB", "MiB", "GiB", "KiB"])
        if dice.random() < 0.1:
            pod["policy"] = dice.choice(["spread", "binpack", "metric", "keti", "random"])
        if self.packing.random() < 0.05:
            pod["policy"] = self.packing.choice(PACKING)
        return pod | self._rules()

    def _shape(self) -> Object:
        dice = self.dice
        kind = dice.random()
        if kind < 0.45:
            return {"containers": {"main": self._amount()}}
        if kind < 0.58:
            return {"containers": {f"c{i}": self._amount(3) for i in range(dice.choice([2, 2, 3, 4]))}}
        if kind < 0.66:
            return {"containers": {"main": {"count": dice.choice([1, 1, 2])}}}
        if kind < 0.73:
            return {"containers": {"main": 2 * self._amount(2)}, "split": dice.choice([2, 2, 3])}
        if kind < 0.81 and self.direct:
            return self._of_kinds()
        if kind < 0.88:
            return self._with_inits()
        if kind < 0.92:
            return {"containers": {f"c{i}": dice.randint(1, 900) for i in range(dice.randint(5, 40))}}
        if kind < 0.95:
            return {"containers": {"main": dice.choice(INVALID)}}
        return {"containers": {"main": {"mem": self._amount(), "count": dice.choice([0, 1])}, "idle": None}}

    def _of_kinds(self) -> Object:
        """MPS shares, whole GPUs by NVIDIA's name, and mixtures."""
        dice = self.dice

        def container() -> Object:
            return dice.choice([{"mps": 1}, {"mps": 1}, {"mps": 2}, {"nvidia": 1}, {"mem": self._amount(3)}])

        shape: Object = {"containers": {f"c{i}": container() for i in range(dice.choice([1, 1, 1, 2, 3]))}}
        if dice.random() < 0.2:
            shape["init"] = {"first": container(), "helper": {"mps": 1, "sidecar": True}}
        if dice.random() < 0.4:
            shape["annotations"] = {"GPUrequest": dice.choice(["100Mi", "2G", "7000Mi", "odd"])}
        return shape

    def _with_inits(self) -> Object:
        dice = self.dice
        inits: Object = {f"i{i}": self._amount() for i in range(dice.choice([1, 1, 2]))}
        if dice.random() < 0.4:
            inits["helper"] = {"mem": self._amount(4), "sidecar": True}
        if dice.random() < 0.15:
            inits["check"] = {"count": 1}
        apps = {f"c{i}": self._amount(4) for i in range(dice.choice([1, 1, 2, 4]))}
        return {"containers": apps, "init": inits}

    def _amount(self, part: int = 1) -> int:
        """Small ones too: on a node that counts GiB they are large."""
        dice = self.dice
        return dice.choice([dice.randint(1, 16), dice.randint(1, 12) * 1000, dice.randint(500, 20000)]) // part + 1

    def _rules(self) -> Object:
        """What else keeps a pod to some nodes."""
        dice, rule = self.dice, self.dice.random()
        if rule < 0.1:
            return {"selector": {"pool": dice.choice(POOLS)}}
        if rule < 0.15:
            return {"affinity": [{"key": "pool", "operator": dice.choice(["In", "NotIn"]), "values": [POOLS[0]]}]}
        if rule < 0.18:
            return {"tolerations": [{"key": "team", "operator": "Exists"}]}
        if rule < 0.24:
            return {"hidden": dice.sample(["n0", "n1", "n2"], 1)}
        return {}

    def pod(self) -> list[Deed]:
        return [("pod", self.new_pod())]

    def crowd(self) -> list[Deed]:
        """Several of a kind, more than there is room for."""
        dice, pod = self.dice, self.new_pod()
        self.pods += 1
        deeds: list[Deed] = [("pod", pod | {"name": f"p{self.pods}-{i}"}) for i in range(dice.randint(2, 6))]
        if dice.random() < 0.5:  # and one behind them that may go where they may not
            free = {key: value for key, value in pod.items() if key not in ("selector", "affinity", "hidden")}
            deeds += [("wait", 1), ("pod", free | {"name": f"p{self.pods}-last"})]
        return deeds

    def recovery(self) -> list[Deed]:
        """GPUs are unhealthy for a while, and get well without a sign to any scheduler. Most of those who wait may not
        go there."""
        dice, name = self.dice, self._node()
        pod = self.new_pod()
        self.pods += 1
        kept_off: Object = dice.choice([{"selector": {"pool": "none"}}, {"hidden": [name]}])
        deeds: list[Deed] = [("configmap", {name: "0,1,2,3"})]
        deeds += [("pod", pod | {"name": f"p{self.pods}-{i}"} | kept_off) for i in range(dice.randint(1, 6))]
        deeds += [("wait", 1), ("pod", pod | {"name": f"p{self.pods}-last"}), ("wait", 3), ("configmap", {name: None})]
        return [*deeds, ("wait", 4)]

    def hard(self) -> list[Deed]:
        """Pods that are dear to find a place for, because there just is none."""
        dice, pod = self.dice, self.new_pod()
        if dice.random() < 0.5:
            apps: Object = {f"c{i}": 500 + i for i in range(dice.randint(3, 6))}
            return [("pod", pod | {"containers": apps, "init": {"first": dice.choice([9000, 17000, 25000])}})]
        count = dice.randint(9, 40)
        middle = 126_000 // count
        apps = {f"c{i}": dice.randint(max(1, middle - 1500), middle + 900) for i in range(count)}
        return [("pod", pod | {"containers": apps, "init": {}})]

    def by_hand(self) -> list[Deed]:
        return [("pod", self.new_pod() | {"node": self._node()})]

    def annotate(self) -> list[Deed]:
        notes = USER_NOTES if self.cluster["guard"] or self.dice.random() < 0.5 else GUARDED_NOTES
        return [("annotate", {"pod": self._pod(), **self.dice.choice(notes)})]

    def end(self) -> list[Deed]:
        word = self.dice.choice(["delete", "delete", "gone", "finish"])
        if word == "finish":
            return [(word, {"pod": self._pod(), "phase": self.dice.choice(["Succeeded", "Failed"])})]
        return [(word, self._pod())]

    def _pod(self) -> str:
        return f"p{self.dice.randint(max(1, self.pods - 9), max(1, self.pods))}"

    # Nodes

    def _node(self) -> str:
        return self.dice.choice(list(self.node_pins))

    def new_node(self, name: str) -> Object:
        dice = self.dice
        pin = "direct" if dice.random() < self.direct else dice.choice(["plugin", "plugin", "plugin", "aliyun"])
        self.node_pins[name] = pin
        node: Object = {"pin": pin, "gpus": [dice.choice(SIZES) for _ in range(dice.choice([1, 1, 2, 2, 3, 4]))]}
        if self.large:
            node["gpus"] = [dice.randint(15000, 16500) for _ in range(8)]
        node["gpus"] = self.cards.setdefault(name, node["gpus"])
        if pin == "aliyun":  # it says how many there are, and the sum
            node["gpus"] = self.cards[name] = [node["gpus"][0]] * len(node["gpus"])
        if dice.random() < 0.7:  # they count only where the node pins directly
            node |= {"slots": dice.choice([1, 2, 2, 3, 10]), "whole": dice.random() < 0.7}
        if dice.random() < 0.25:
            node["unit"] = "GiB"
        if dice.random() < 0.4:
            node["labels"] = {"pool": dice.choice(POOLS)}
        if dice.random() < 0.1:
            node["taints"] = [TAINT]
        return node

    def change_node(self) -> list[Deed]:
        dice, name = self.dice, self._node()
        gpu = dice.randint(0, 3)
        changes: list[Object] = [
            {"unit": "GiB"}, {"unit": "MiB"}, {"state": "draining"}, {"state": "ready"}, {"nvidia": 2},
            {"nvidia": None}, {"labels": {"pool": dice.choice(POOLS)}}, {"taints": [TAINT]}, {"taints": []},
            {"cordon": True}, {"cordon": False}, {"slots": dice.choice([0, 1, 3])}, {"whole": dice.random() < 0.5},
        ]  # fmt: skip
        if self.node_pins[name] != "aliyun":
            changes += [
                {"unhealthy": [gpu]},
                {"unhealthy": []},
                {"unhealthy": []},
                {"lost": [gpu]},
                {"lost": []},
                {"capacity": 0},
            ]
            changes += [{"capacity": None}, {"pin": dice.choice(["plugin", "direct"])}]
        if dice.random() < 0.15:
            return [("configmap", {name: dice.choice(["0", "0,1", "", None])})]
        if dice.random() < 0.12:
            return [("no_node", name), ("node", {name: self.new_node(name)})]
        return [("node", {name: dice.choice(changes)})]

    def recount(self) -> list[Deed]:
        """Somebody has a node count otherwise while pods run there."""
        units = self.dice.sample(["GiB", "MiB"], 2)
        return [("wait", 1), *(("node", {self._node(): {"unit": unit}}) for unit in units[: self.dice.randint(1, 2)])]

    # The rest of the world

    def wait(self) -> list[Deed]:
        return [("wait", self.dice.choice([0.5, 1, 1, 2, 4, 8, 13, 32]))]

    def watch(self) -> list[Deed]:
        dice = self.dice
        kind = dice.choice(["pods", "pods", "nodes", "configmaps"])
        return dice.choice([
            [("lag", {kind: dice.choice([0.3, 2.0, 8.0])})], [("lag", {kind: 0.0})], [("cut", {"kind": kind})],
            [("cut", {"kind": kind, "compact": True})], [("repeat", True)], [("repeat", False)],
            [("down", dice.choice([1, 4, 12]))],
        ])  # fmt: skip

    def restore(self) -> list[Deed]:
        """A copy, some life, and back."""
        dice = self.dice
        between: list[Deed] = []
        for _ in range(dice.randint(0, 4)):
            between += dice.choice([self.pod, self.end, self.wait, self.annotate])()
        return [("snapshot", None), *between, ("restore", {"bump": dice.random() < 0.5})]

    def fault(self) -> list[Deed]:
        faults = ["answer lost", "request lost", "not sent", "error 500", "error 403", "slow"]
        return [("faults", self.dice.choices(faults, k=self.dice.randint(1, 3)))]

    def restart(self) -> list[Deed]:
        return [("restart", None)]

    def caller(self) -> list[Deed]:
        if self.dice.random() < 0.5:
            return [("ask", self._pod())]
        return [("bind", {"pod": self._pod(), "node": self._node()})]


def story(seed: int) -> Story:
    return Adversary(seed).story()
