"""Which GPUs a request gets: valid, exact in small cases, and in the order of the policy."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.facts import policies
from gpushare.core.facts.kinds import MEMORY
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, Places, Request, Role, Share
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.room import Room
from tests.core import oracle, strategies
from tests.support.builders import asks, container, facts, share

SERVED = (Pin.DIRECT, Pin.PLUGIN)


def room(*totals: int, used: tuple[int, ...] = (), **more: Any) -> Room:
    node = facts(*totals, **more)
    return Room.of(node, used or (0,) * len(totals))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Request, Room]:
    found = draw(strategies.rooms(pins=SERVED))
    return draw(strategies.api_requests(pin=found.facts.pin)), found


@given(cases(), strategies.POLICIES)
@settings(max_examples=500)
def test_a_plan_keeps_all_rules_and_exists_whenever_one_is_possible(case: tuple[Request, Room], policy: str) -> None:
    request, found = case
    spots, pin = oracle.spots(found), found.facts.pin
    places = gpu_choice.plan(request, found, policy)
    if places is None:
        assert not oracle.fits(request, pin, spots), next(oracle.placements(request.shares, pin, spots))
    else:
        assert oracle.allowed(request.shares, pin, spots, places), places


@st.composite
def sidecar_cases(draw: st.DrawFn) -> tuple[Request, Room]:
    """Sidecars, init containers that start between them, and apps, on two or three empty GPUs of one size."""
    amounts = st.integers(1, 5)
    before = [
        container(f"i{i}", units, sidecar=sidecar)
        for i, (units, sidecar) in enumerate(draw(st.lists(st.tuples(amounts, st.booleans()), min_size=2, max_size=5)))
    ]
    apps = [container(f"c{i}", units) for i, units in enumerate(draw(st.lists(amounts, min_size=1, max_size=2)))]
    request = asks(containers=apps, inits=[*before, container("last", draw(st.integers(4, 9)))])
    return request, room(*[draw(st.integers(6, 11))] * draw(st.integers(2, 3)))


@given(sidecar_cases())
@settings(max_examples=300)
def test_it_matters_to_init_containers_which_gpus_the_sidecars_are_on(case: tuple[Request, Room]) -> None:
    request, found = case
    exists = gpu_choice.plan(request, found, "binpack", Budget(cost.UNHURRIED_LOOKS)) is not None
    assert exists is oracle.fits(request, found.facts.pin, oracle.spots(found))


def test_two_gpus_with_as_much_left_differ_if_a_sidecar_is_on_one_of_them() -> None:
    """Both GPUs have 2 left once the sidecar and the app of 4 are placed. The sidecar of 1 must join the other sidecar:
    then the init container that starts after them has a whole GPU."""
    sidecars = [container("s0", 4, sidecar=True), container("s1", 1, sidecar=True)]
    request = asks(containers=[container("a", 4), container("b", 2)], inits=[*sidecars, container("i", 6)])
    assert gpu_choice.plan(request, room(6, 6), "binpack") is not None


@given(cases())
@settings(max_examples=300)
def test_whether_there_is_a_plan_is_known_without_making_one(case: tuple[Request, Room]) -> None:
    request, found = case
    task = gpu_choice.task_of(request, found.facts.pin, found.facts.unit)
    exists = task is not None and gpu_choice.fits(task, found, Budget(cost.UNHURRIED_LOOKS))
    assert exists is oracle.fits(request, found.facts.pin, oracle.spots(found))


@given(cases(), strategies.POLICIES)
def test_a_greedy_answer_is_what_the_plan_leaves_free(case: tuple[Request, Room], policy: str) -> None:
    """Where all pieces go to the next best GPU. Of GPUs with as much left either may be taken."""
    request, found = case
    task, budget = gpu_choice.task_of(request, found.facts.pin, found.facts.unit), Budget(cost.UNHURRIED_LOOKS)
    if task is None or task.inits or request.one_share or task.cannot_fit(found, budget):
        return
    left, places = (
        task.greedy(found, budget, emptiest_first=policies.POLICIES[policy].emptiest_first),
        gpu_choice.plan(request, found, policy),
    )
    if left is not None:
        assert places is not None
        total = sum(charge.units for charge in gpu_choice.charges(request.shares, found.facts, places))
        assert left <= found.sum_free - total


@given(strategies.shares_in_order(st.sampled_from(list(Role))))
@settings(max_examples=300)
def test_a_pod_is_charged_what_kubelet_marks_for_it_in_the_end(shares: list[Share]) -> None:
    places: Places = ((0,),) * len(shares)
    assert gpu_choice.charges(shares, facts(100), places) == ((0, oracle.units_kubelet_holds(shares), 0),)


@given(cases())
def test_a_pod_is_charged_the_most_it_uses_at_any_moment(case: tuple[Request, Room]) -> None:
    request, found = case
    spots = oracle.spots(found)
    for places in list(oracle.placements(request.shares, found.facts.pin, spots))[:20]:
        charged = gpu_choice.charges(request.shares, found.facts, places)
        assert {gpu: (units, slots) for gpu, units, slots in charged} == oracle.peak(request.shares, spots, places)
        assert list(charged) == sorted(charged)


def test_init_containers_cost_only_what_they_need_beyond_the_others() -> None:
    before, stays, main = (
        share(6, role=Role.INIT, position=1), share(2, role=Role.SIDECAR, position=2), share(5),
    )  # fmt: skip
    assert gpu_choice.charges([before, stays, main], facts(8), ((0,), (0,), (0,))) == ((0, 7, 0),)
    assert gpu_choice.charges([before, main], facts(8, 8), ((1,), (0,))) == ((0, 5, 0), (1, 6, 0))


@pytest.mark.parametrize(("policy", "gpu"), [("binpack", 1), ("spread", 2)])
def test_binpack_takes_the_tightest_gpu_and_spread_the_emptiest(policy: str, gpu: int) -> None:
    assert gpu_choice.plan(asks(3), room(8, 8, 8, used=(6, 4, 1)), policy) == ((gpu,),)


@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_an_unhealthy_gpu_is_never_chosen(policy: str) -> None:
    assert gpu_choice.plan(asks(3), room(8, 8, unhealthy=[0], used=(5, 0)), policy) == ((1,),)
    assert gpu_choice.plan(asks(3), room(8, unhealthy=[0]), policy) is None


def test_between_equal_gpus_one_in_use_goes_first_for_binpack() -> None:
    assert gpu_choice.plan(asks(3), room(4, 8, used=(0, 4)), "binpack") == ((1,),)


def test_whole_gpus_are_taken_only_if_nobody_is_there() -> None:
    assert gpu_choice.plan(asks(whole=1), room(8, 8, used=(1, 0)), "binpack") == ((1,),)
    assert gpu_choice.plan(asks(whole=2), room(8, 8, used=(1, 0)), "binpack") is None


def test_a_whole_gpu_and_a_share_of_one_pod_are_on_different_gpus() -> None:
    places = gpu_choice.plan(asks(2, whole=1), room(4, 8), "binpack")
    assert places is not None
    assert set(places[0]).isdisjoint(places[1])
    assert gpu_choice.plan(asks(2, whole=1), room(8), "binpack") is None


def test_the_largest_container_is_placed_first_so_that_all_fit() -> None:
    assert gpu_choice.plan(asks(2, 6, 4), room(6, 6), "spread") == ((1,), (0,), (1,))


def test_a_split_uses_as_many_different_gpus() -> None:
    assert gpu_choice.plan(asks(6, split=3), room(8, 2, 8, 1), "binpack") == ((1, 0, 2),)
    assert gpu_choice.plan(asks(6, split=3), room(8, 2, 1), "binpack") is None


def test_on_plugin_nodes_a_pool_of_init_units_stays_on_one_gpu() -> None:
    asked = asks(5, 5, init=[6], direct=False)
    assert gpu_choice.plan(asked, room(10, 6, pin="plugin"), "binpack") == ((0,), (0,), (0,))
    assert gpu_choice.plan(asked, room(9, 9, pin="plugin"), "binpack") is None
    assert gpu_choice.plan(asks(5, 5, init=[6]), room(9, 9), "binpack") is not None


def test_on_plugin_nodes_a_split_after_an_init_container_has_no_plan() -> None:
    """kubelet would hand the init container's units on at random."""
    asked = asks(4, init=[6], split=2, direct=False)
    assert gpu_choice.pieces_of(asked, Pin.PLUGIN, "MiB") is None
    assert gpu_choice.plan(asked, room(8, 8, pin="plugin"), "binpack") is None


def test_on_plugin_nodes_containers_that_draw_nothing_may_be_elsewhere() -> None:
    asked = asks(3, 6, init=[3], direct=False)
    assert gpu_choice.plan(asked, room(3, 6, pin="plugin"), "binpack") == ((0,), (0,), (1,))


def test_a_directly_pinned_init_container_uses_what_its_pod_will_have() -> None:
    places = gpu_choice.plan(asks(6, init=[5]), room(8, 8), "binpack")
    assert places is not None
    assert places[0] == places[1]
    assert gpu_choice.plan(asks(4, init=[6]), room(5, 8, used=(0, 1)), "binpack") == ((1,), (0,))


def test_two_directly_pinned_init_containers_may_need_two_gpus() -> None:
    before = [container("a", 6), container("stays", 5, sidecar=True), container("b", 4)]
    assert gpu_choice.plan(asks(containers=[], inits=before), room(6, 4), "binpack") == ((0,), (0,), (1,))


def test_a_directly_pinned_init_container_may_have_the_whole_gpu_before_its_pod_shares_it() -> None:
    assert gpu_choice.plan(asks(4, inits=[container("a", whole=1)]), room(8), "binpack") == ((0,), (0,))


@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_a_pod_made_to_cost_time_costs_little(policy: str) -> None:
    """Fifty containers that just do not fit: the search gives up instead of trying everything."""
    asked = asks(*[3] * 50)
    assert gpu_choice.plan(asked, room(*[8] * 16), policy) is None


@pytest.mark.parametrize("pin", [Pin.DIRECT, Pin.PLUGIN])
@pytest.mark.parametrize("role", [Role.APP, Role.INIT, Role.SIDECAR])
@pytest.mark.parametrize("containers", [190, 5000])
def test_a_pod_of_thousands_of_containers_is_answered(pin: Pin, role: Role, containers: int) -> None:
    """It may be made to break us, and must not: whatever the answer, there is one."""
    shares = (
        Share("main", 0, Role.APP, MEMORY, 1),
        *(Share(f"c{i}", i, role, MEMORY, 1) for i in range(1, containers)),
    )
    node = NodeFacts("a", "MiB", pin, (Gpu(0, "GPU-0", 8000), Gpu(1, "GPU-1", 8000)))
    places = gpu_choice.plan(Request(shares, pin), Room.of(node, [0, 0]), policies.BINPACK.name)
    assert places is None or len(places) == containers
    if containers == 190 and role is Role.APP:
        assert places is not None
