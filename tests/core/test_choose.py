"""Which GPUs a request gets: valid, exact in small cases, and in the order of the policy."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core import choose
from gpushare.core.choose import Room
from gpushare.core.model import Pin, Request
from tests.core import oracle, strategies
from tests.core.builders import facts

SERVED = (Pin.DIRECT, Pin.PLUGIN)


def room(*totals: int, used: tuple[int, ...] = (), **more: Any) -> Room:
    node = facts(*totals, **more)
    return Room.of(node, used or (0,) * len(totals))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Request, Room]:
    found = draw(strategies.rooms(pins=SERVED))
    return draw(strategies.api_requests(pin=found.facts.pin)), found


@given(cases(), strategies.POLICIES)
@settings(max_examples=2000)
def test_a_plan_keeps_all_rules_and_exists_whenever_one_is_possible(case: tuple[Request, Room], policy: str) -> None:
    request, found = case
    spots, pin = oracle.spots(found), found.facts.pin
    places = choose.plan(request, found, policy)
    if places is None:
        assert not oracle.fits(request, pin, spots), next(oracle.placements(request.shares, pin, spots))
    else:
        assert oracle.allowed(request.shares, pin, spots, places), places
