"""Whatever happens, in whatever order: nothing is granted twice, nothing leaks, and nobody waits for what is free.

Each seed is a small cluster and some dozens of deeds. `check_books` and `check_granted` hold after every one of them.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.scenarios import cluster
from tests.scenarios.driver import Deeds
from tests.scenarios.world import World
from tests.support import objects
from tests.support.objects import Object

SEEDS = 40
QUIET = 70  # seconds without a wake-up, after which everything has come to rest
FAULTS = ["answer lost", "request lost", "not sent", "error 403", "slow"]


class Story:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes = {f"n{i}": self._new_node() for i in range(self.chance.randint(1, 3))}
        self.world = World(self.chance.choice(["binpack", "spread"]), None)
        for name, given in self.nodes.items():
            self.world.api.nodes[name] = objects.node(name, given)
        self.deeds = Deeds(self.world, self.nodes)
        self.count = 0
        self.backed_up = False
        self.told: list[object] = []  # shown by pytest when it fails

    async def tell(self) -> None:
        self.world.start()
        kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (30, self.create), (20, self.ask), (20, self.end), (5, self.nominate), (5, self.change_node),
            (5, self.pass_time), (5, self.cut_off), (2, self.restart), (3, self.back_up), (3, self.put_back),
        ]  # fmt: skip
        try:
            for _ in range(self.chance.randint(10, 50)):
                await self.chance.choices([deed for _, deed in kinds], [weight for weight, _ in kinds])[0]()
            await self.settle()
            self.nobody_waits_for_nothing()
            await self.nothing_is_left()
        finally:
            await self.world.stop()

    async def do(self, word: str, given: Any, **options: Any) -> None:
        self.told.append((word, given, options))
        self.deeds.options = options
        waited = getattr(self.deeds, word)(given)
        if waited is not None:
            await waited
        await self.world.tick()
        self.world.check_books()
        self.world.check_granted()

    # Deeds

    def _new_node(self) -> Object:
        pin, gpus = self.chance.choice(["plugin", "plugin", "direct", "aliyun"]), self.chance.randint(1, 3)
        if pin == "aliyun":
            return {"pin": pin, "capacity": 8000 * gpus, "count": gpus}
        sells = {"slots": self.chance.randint(0, 3), "whole": self.chance.random() < 0.5} if pin == "direct" else {}
        return {"pin": pin, "gpus": self.chance.choices([6000, 8000, 12000], k=gpus), **sells}

    async def create(self) -> None:
        chance, self.count = self.chance, self.count + 1
        asks: Object = chance.choice(
            [
                {"containers": {"main": chance.randint(1, 8) * 1000}},
                {"containers": {"main": chance.randint(1, 5) * 1000, "helper": chance.randint(1, 5) * 1000}},
                {"containers": {"main": chance.randint(1, 4) * 2000}, "split": 2},
                {"containers": {"main": {"count": 1}}},
                {"containers": {"main": {"nvidia": 1}}},
                {"containers": {"main": {"mps": chance.randint(1, 2)}, "helper": {"mps": 1}}},
                {"containers": {"main": {"mps": 1}}, "annotations": {"GPUrequest": f"{chance.randint(1, 5)}000Mi"}},
                {"containers": {"main": chance.randint(1, 5) * 1000}, "init": {"fetch": chance.randint(1, 6) * 1000}},
            ]
        )
        pod = {"name": f"p{self.count}", "priority": chance.choice([0, 0, 5, 10]), "direct": chance.random() < 0.4}
        by_hand = {"node": chance.choice(list(self.nodes))} if chance.random() < 0.05 else {}
        await self.do("pod", pod | asks | by_hand | {"claim": chance.random() < 0.1})
        if chance.random() < 0.7 and not by_hand:
            await self.do("schedule", pod["name"])

    async def ask(self) -> None:
        if not self._pending():
            return
        pod, among = self.chance.choice(self._pending()), list(self.world.api.nodes)
        deed = self.chance.choice(["schedule", "filter", "prioritize", "bind"])
        if deed == "bind" and among:
            await self.do("api_faults", self.chance.choice([*FAULTS, "ok", "ok", "ok"]))
            await self.do("bind", {pod: self.chance.choice(among)})
            self.world.api.faults.clear()
        elif deed != "bind":
            await self.do(deed, pod)

    async def end(self) -> None:
        running = [name for name in self._names() if name not in self._pending() and self._phase(name) == "Running"]
        bound = [name for name in self._names() if name not in self._pending() and self._phase(name) == "Pending"]
        if bound and self.chance.random() < 0.4:
            await self.do("run", self.chance.choice(bound))
        elif bound and self.chance.random() < 0.3:
            await self.do("fail", {self.chance.choice(bound): "UnexpectedAdmissionError"})
        elif running and self.chance.random() < 0.4:
            await self.do("end", self.chance.choice(running))
        elif self._names():
            await self.do(self.chance.choice(["delete", "gone", "gone"]), self.chance.choice(self._names()))

    async def nominate(self) -> None:
        if self._pending():
            node = self.chance.choice(["", *self.nodes])
            await self.do("change", {self.chance.choice(self._pending()): {"nominated": node}})

    async def change_node(self) -> None:
        name = self.chance.choice(list(self.nodes))
        change = self.chance.choice(["state", "nvidia", "unhealthy", "away"])
        if change == "unhealthy":
            await self.do("configmap", {name: self.chance.choice(["0", "1", "", "0,1"])})
        elif change == "away":
            await self.do("no_node", name)
            await self.do("node", {name: {}})
        elif self.nodes[name]["pin"] != "aliyun":
            value = self.chance.choice(["ready", "draining"]) if change == "state" else self.chance.choice([0, 1])
            await self.do("node", {name: {change: value}})

    async def pass_time(self) -> None:
        await self.do("wait", self.chance.choice([1, 5, 11, 31]))

    async def cut_off(self) -> None:
        how = self.chance.choice(["stopped", "running", "lost", "relist"])
        await (self.do("relist", True) if how == "relist" or self.world.watch == "lost" else self.do("watch", how))

    async def restart(self) -> None:
        await self.do("restart", True)

    async def back_up(self) -> None:
        await self.do("back_up", True)
        self.backed_up = True

    async def put_back(self) -> None:
        """etcd is restored from an older copy, and the scheduler may ask before the extender has noticed."""
        if self.backed_up:
            await self.do("restore", True)
            for _ in range(self.chance.randint(0, 2)):
                await self.ask()
            await self.do("relist", True)

    # What must be true in the end

    async def settle(self) -> None:
        """Everything is well, and the scheduler asks about whoever is woken until nobody is."""
        await self.do("relist", True)
        for name, given in self.nodes.items():
            await self.do("node", {name: {} if given["pin"] == "aliyun" else {"state": "ready", "nvidia": 0}})
            await self.do("configmap", {name: ""})
        quiet = 0
        while quiet < QUIET:
            await self.world.wait(1)
            woken, self.world.woken[:] = list(self.world.woken), []
            due = [name for name in woken if name in self._pending()]
            for name in due:
                await self.do("schedule", name)
            quiet = 0 if due else quiet + 1

    def nobody_waits_for_nothing(self) -> None:
        for name in self._pending():
            pod = self.deeds._find(name)
            if pod["metadata"]["uid"] in self.world.life.wakeups:
                answer = self.world.filter("names", pod, list(self.world.api.nodes))
                assert not answer["fits"], f"{name} fits {answer['fits']}, and nobody said so: {self.told}"

    async def nothing_is_left(self) -> None:
        for name in self._names():
            await self.do("gone", name)
        await self.world.wait(31)
        ledger = self.world.ledger
        left = [ledger.holdings(), ledger.has_promises(), self.world.life.pending.shown, self.world.life.wakeups]
        assert not any(left), f"{left}: {self.told}"
        for node in self.world.api.nodes:
            sizes = objects.node(node, self.nodes[node])["status"]["capacity"]
            assert objects.quantity(sum(self.world.free(node))) == sizes["aliyun.com/gpu-mem"], f"{node}: {self.told}"

    def _names(self) -> list[str]:
        return [name for _, name in self.world.api.pods]

    def _phase(self, name: str) -> str:
        return str(self.deeds._find(name)["status"]["phase"])

    def _pending(self) -> list[str]:
        """Not bound, and not being deleted."""
        return [
            name
            for (_, name), pod in self.world.api.pods.items()
            if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_the_promises_hold(seed: int) -> None:
    with asyncio.Runner(loop_factory=cluster.Loop) as runner:
        runner.run(Story(seed).tell())
