"""Whatever happens on a node: no unit is held twice, sums are right, refusals say why, annotations end up true.

A state machine drives the real plugin against kubelet's own rules (`devcluster.kubelet.device_manager`): pods of all
shapes, equal ones in other orders, watches that are late, pods that end, restarts of both sides, an API server that is
away, GPUs that become unhealthy, and a `List` in the middle of an Allocate, which makes kubelet hand units out twice.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest import mock

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpushare.core.facts import names
from gpushare.core.facts.model import Request, Role
from gpushare.node.deviceplugin import podlist
from gpushare.node.deviceplugin.allocation.plans import size_of
from tests.node.deviceplugin import promises
from tests.node.deviceplugin.made import facts, pod
from tests.node.deviceplugin.world import World

T = TypeVar("T")
AMOUNTS = st.sampled_from([1, 2, 2, 3, 4, 5, 6])

WITHOUT_SPLIT = st.one_of(
    st.builds(pod, AMOUNTS),
    st.builds(pod, AMOUNTS, AMOUNTS),
    st.builds(lambda n: pod(whole=n), st.sampled_from([1, 1, 2])),
    st.builds(lambda i, n: pod(n, inits=[i]), AMOUNTS, AMOUNTS),
    st.builds(lambda i, s, n: pod(n, inits=[i], sidecars=[s]), AMOUNTS, AMOUNTS, AMOUNTS),
    st.builds(lambda i, j, a, b: pod(a, b, inits=[i, j]), AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS),
    st.builds(lambda n: pod(whole=n, whole_inits=[1]), st.sampled_from([1, 2])),
    st.builds(lambda n: pod(n, whole=1), AMOUNTS),
)
SPLIT = st.one_of(
    st.builds(lambda n: pod(n * 2, split=2), AMOUNTS),
    st.builds(lambda a, b: pod(a * 2, b * 2, split=2), AMOUNTS, AMOUNTS),
    st.builds(lambda n: pod(n * 3, split=3), AMOUNTS),
)
SHAPES = st.one_of(WITHOUT_SPLIT, SPLIT)
EVENTS = (
    ["pods_come_and_kubelet_takes_some"] * 6
    + ["pods_end", "it_is_quiet"] * 3
    + ["kubelet_takes_some", "the_watch_brings_news", "all_answer"] * 2
    + ["a_pod_is_bound_by_hand_and_taken", "the_plugin_restarts", "kubelet_restarts", "some_do_not_answer"]
)
ROUGH_EVENTS = [
    "a_pod_is_bound_that_needs_gpus_only_at_first", "a_gpu_becomes_unhealthy_or_healthy",
    "kubelet_hands_units_out_twice",
]  # fmt: skip
NEWS = st.sampled_from([None, 0, 1, 2])
SEEDS = st.integers(0, 1 << 16)
ROUGH = st.booleans()
ASKS = st.sampled_from([True] * 7 + [False])


class Machine(RuleBasedStateMachine):
    """`calm`: nothing has happened so far that may spoil a plan, so none may fail. `rough`: such things may happen."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.runner = asyncio.Runner()
        self.patch = mock.patch.object(podlist, "WAIT_SECONDS", 0.0)
        self.patch.start()
        self.calm = True
        self.unplanned: set[str] = set()  # pods bound by hand, or the like
        self.lost = False  # nobody can know any more what some pods hold
        self.secret = False  # there are pods of which kubelet never says what they hold
        self.unhealthy: dict[int, str] = {}

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.finish()
        finally:
            self.patch.stop()
            self.runner.close()
            logging.disable(logging.NOTSET)

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)

    @initialize(totals=st.lists(st.integers(6, 16), min_size=1, max_size=4), seed=SEEDS, rough=ROUGH, asks=ASKS)
    def a_node(self, totals: list[int], seed: int, rough: bool, asks: bool) -> None:
        """`asks`: kubelet asks what it shall take; before 1.19 it does not, and takes anything."""

        async def make() -> World:
            world = World(*totals, seed=seed, asks=asks)
            await world.begin()
            return world

        self.totals, self.rough, self.calm = totals, rough, asks
        self.world = self.do(make())

    @rule(data=st.data(), what=st.sampled_from(EVENTS + ROUGH_EVENTS))
    def something_happens(self, data: st.DataObject, what: str) -> None:
        if self.rough or what not in ROUGH_EVENTS:
            getattr(self, what)(data)

    # Pods come

    def pods_come_and_kubelet_takes_some(self, data: st.DataObject) -> None:
        """In any order, and often before the watch has brought them."""
        shapes = data.draw(st.lists(SHAPES, min_size=1, max_size=2))
        for shape in shapes * data.draw(st.integers(1, 3)):
            self.world.bind(shape)
        self.world.deliver(data.draw(NEWS))
        self.kubelet_takes_some(data)

    def kubelet_takes_some(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(self.world.waiting()))
        for uid in order[: data.draw(st.integers(0, len(order)))]:
            self.take(uid)

    def a_pod_is_bound_that_needs_gpus_only_at_first(self, data: st.DataObject) -> None:
        """kubelet never says what such pods hold. If one ends before another of its kind starts, the other may seem
        to be where the first was: nothing is held twice, but a plan may be spoilt."""
        self.calm, self.secret = False, True
        self.world.bind(pod(inits=[data.draw(AMOUNTS)]))

    def a_pod_is_bound_by_hand_and_taken(self, data: st.DataObject) -> None:
        """Never a split one: kubelet cannot tell it from others of its amount, which the extender takes care of."""
        uid = self.world.bound(data.draw(WITHOUT_SPLIT), planned=False)
        self.unplanned.add(uid)
        self.take(uid)

    def take(self, uid: str) -> None:
        if self.world.server.away and self.world.news:
            self.calm = False
            self.unplanned.add(uid)  # nobody knows its plan
        self.calm &= not self.may_be_mistaken(uid)
        if not self.do(self.world.admit(uid)):
            promises.a_refusal_is_explained(self.world.refusals[uid])
            assert not self.calm or uid in self.unplanned, self.world.refusals[uid]

    def may_be_mistaken(self, uid: str) -> bool:
        """kubelet says amounts only. If it takes a pod before an older one with such an amount, that one's plan is
        used: the sums are right all the same, unless units are handed on there, which ties containers together, or
        one of them has no plan."""
        mine, waiting = self.world.request_of(uid), self.world.waiting()
        for other in waiting:
            theirs = self.world.request_of(other)
            if other == uid or not _sizes(mine) & _sizes(theirs):
                continue
            tied = mine.shape != theirs.shape and (_hands_on(mine) or _hands_on(theirs))
            if (tied and waiting.index(other) < waiting.index(uid)) or {uid, other} & self.unplanned:
                return True
        return uid in self.unplanned and _hands_on(mine)

    # They end

    def pods_end(self, data: st.DataObject) -> None:
        """Or are deleted, or replaced by others of the same name."""
        world, how = self.world, data.draw(st.sampled_from(["end", "end", "delete", "replace"]))
        self.let_it_be_known(at_once=data.draw(st.booleans()))
        there = world.running() if how == "end" else list(world.server.pods)
        for uid in data.draw(st.lists(st.sampled_from(there), unique=True, max_size=3)) if there else ():
            name = world.server.pods[uid]["metadata"]["name"]
            world.end(uid) if how == "end" else world.delete(uid)
            if how == "replace":
                shape = data.draw(SHAPES)
                world.bind(shape | {"metadata": shape["metadata"] | {"name": name}})
        if self.calm:
            world.deliver()  # else the plan of one that is gone may be used, and another's is not

    def let_it_be_known(self, at_once: bool) -> None:
        """Normally a pod ends later than a second after others were started. One that ends at once, after another got
        what was planned for it, leaves the extender with a wrong picture for that second."""
        if (at_once and self.rough) or self.world.server.away or not self.world.kubelet_answers:
            self.calm = False
        else:
            self.do(self.world.settled())

    # Time goes by, and something breaks

    def it_is_quiet(self, data: st.DataObject) -> None:
        """For a second, or for so long that everything comes through that can."""
        if data.draw(st.booleans()):
            self.world.plugin.reconciler.due()
            self.do(self.world.plugin.reconciler.once())
            return
        self.do(self.world.settled())
        if not self.world.server.away and self.world.kubelet_answers:
            promises.annotations_are_true(self.world, self.unplanned)
            if not self.lost and not self.secret:
                promises.the_plugin_knows_what_is_held(self.world)

    def the_plugin_restarts(self, data: st.DataObject) -> None:
        """Not after kubelet has lost something: it does not list init containers, so a plugin that knows nothing could
        not know that their units are not free."""

        async def restart() -> None:
            self.world.start_plugin()
            await self.world.begin()

        if not self.lost:
            self.do(restart())
            self.lost = self.secret

    def kubelet_restarts(self, data: st.DataObject) -> None:
        """A forgetful one died before it wrote down what it was given last, and asks again."""
        world, forgetful = self.world, data.draw(st.booleans())
        self.do(world.settled())
        saved = world.manager.checkpoint()
        if forgetful and world.waiting() and self.calm and not self.unplanned:
            self.do(world.manager.admit(world.server.pods[world.waiting()[0]]))  # and the machine dies
        world.start_kubelet(saved)
        self.do(world.relist())

    def some_do_not_answer(self, data: st.DataObject) -> None:
        self.world.server.away, self.world.kubelet_answers = data.draw(st.booleans()), data.draw(st.booleans())

    def all_answer(self, data: st.DataObject) -> None:
        self.world.server.away, self.world.kubelet_answers = False, True

    def the_watch_brings_news(self, data: st.DataObject) -> None:
        self.world.deliver(data.draw(NEWS))

    def a_gpu_becomes_unhealthy_or_healthy(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.totals) - 1))
        if self.unhealthy.pop(index, None) is None:
            self.calm, self.unhealthy[index] = False, "XID 79"
        self.world.set_gpus(facts(*self.totals, unhealthy=self.unhealthy))
        self.do(self.world.relist())

    def kubelet_hands_units_out_twice(self, data: st.DataObject) -> None:
        """Somebody lists while kubelet asks for one pod's units, just after another has ended; then comes a third."""
        world = self.world
        if not world.running() or len(world.waiting()) < 2:
            return
        self.calm, self.lost = False, True
        ending = data.draw(st.sampled_from(world.running()))
        first, second = data.draw(st.permutations(world.waiting()))[:2]

        async def meddle() -> None:
            world.meanwhile(None)
            if ending in world.active():
                world.end(ending)
            world.list_pod_resources()

        world.meanwhile(meddle)
        self.take(first)
        self.take(second)
        world.meanwhile(None)

    # What is promised

    @invariant()
    def nothing_is_given_wrongly(self) -> None:
        if hasattr(self, "world"):
            promises.no_unit_is_held_twice(self.world)
            promises.a_whole_gpu_is_nobody_elses(self.world)
            promises.each_container_is_where_it_is_told_to_be(self.world)
            if self.calm and not self.world.waiting() and not self.unplanned:
                promises.sums_are_as_planned(self.world)
            if self.unhealthy and not self.lost:
                self.do(promises.what_is_held_is_not_withdrawn(self.world))

    def finish(self) -> None:
        """In the end everything that can start starts, all annotations are true, and nothing is left behind."""
        world = self.world
        world.server.away, world.kubelet_answers, self.unhealthy = False, True, {}
        world.set_gpus(facts(*self.totals))
        self.do(world.settled())
        self.calm |= world.asks and not self.secret and promises.plans_fit(world)
        for uid in world.waiting():
            self.take(uid)
        self.do(world.settled())
        promises.annotations_are_true(world, self.unplanned)
        for uid in world.active():
            world.end(uid)
        self.do(world.settled())
        assert world.plugin.held() == {}
        assert all(self.do(world.devices(names.GPU_MEM)).values())
        assert all(self.do(world.devices(names.GPU_COUNT)).values())


def _hands_on(request: Request) -> bool:
    return any(share.role is Role.INIT for share in request.shares)


def _sizes(request: Request) -> set[tuple[bool, int]]:
    return {(share.kind.exclusive, size_of(share)) for share in request.shares}


TestWhateverHappens = Machine.TestCase
TestWhateverHappens.settings = hypothesis.settings(
    max_examples=150,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
