"""Ids and the messages they come in are read by columns: the same as one by one, and nothing worse than a sentence."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpushare.kubelet import unit_ids
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.kubelet.unit_ids import Catalog, Ids, Reader
from gpushare.node.deviceplugin import decode
from gpushare.node.deviceplugin.decode import Malformed
from tests.node.deviceplugin.made import facts

GPUS = facts(40, 1300, 7).gpus
CATALOG = Catalog("MiB")
CATALOG.know(GPUS)
NAMES = st.one_of(
    st.builds(
        lambda uuid, number: CATALOG.keys[uuid] + unit_ids.numbers(number + 1)[-4:],
        st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]),
        st.integers(0, 1400),
    ),
    st.text(max_size=12),
    st.text(unit_ids.DIGITS + "ÄZ", min_size=7, max_size=7),
)


def one_by_one(names: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for gpu in GPUS:
        numbered = unit_ids.numbers(gpu.total)
        for number in range(gpu.total):
            if CATALOG.keys[gpu.uuid] + numbered[4 * number : 4 * number + 4] in names:
                found[gpu.uuid] = found.get(gpu.uuid, 0) | 1 << number
    return found


@given(st.lists(NAMES, max_size=20))
def test_units_are_those_that_reading_one_by_one_would_find(names: list[str]) -> None:
    units = Reader(Ids.of(names), CATALOG.keys).all(CATALOG.totals)
    assert units == one_by_one(names)
    known = set(CATALOG.names(units))
    assert known <= set(names)
    strangers = Reader(Ids.of(names), CATALOG.keys).unknown(CATALOG.totals)
    assert sorted(strangers) == sorted(name for name in names if name not in known)


@given(st.integers(0, (1 << 200) - 1), st.integers(0, 250))
def test_the_lowest_units_are_the_first_so_many(units: int, count: int) -> None:
    lowest = unit_ids.lowest(units, count)
    assert lowest & ~units == 0
    assert lowest.bit_count() == min(count, units.bit_count())
    assert not lowest or units & ((1 << lowest.bit_length()) - 1) == lowest


@given(st.lists(NAMES, max_size=20), st.lists(NAMES, max_size=5), st.integers(0, (1 << 31) - 1))
def test_a_request_is_read_as_protobuf_reads_it(available: list[str], must: list[str], size: int) -> None:
    one = messages.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
    )
    body = messages.PreferredAllocationRequest(container_requests=[one, one]).SerializeToString()
    first, second = decode.preferred(body)
    assert first == second
    assert (sorted(first.available.texts()), sorted(first.must_include.texts())) == (sorted(available), sorted(must))
    assert first.size == size
    asked = messages.AllocateRequest(container_requests=[{"devices_ids": available}]).SerializeToString()
    (found,) = decode.allocate(asked)
    assert sorted(found.texts()) == sorted(available)
    assert found.many == len(available)


@given(st.binary(max_size=60))
@example(b"\x0a\x02\x0a\x07")
@example(b"\x0a\x0b\x0a\x07abcdefg\x0a\x07")
def test_bytes_that_are_no_message_are_malformed_and_nothing_worse(body: bytes) -> None:
    for parse in (decode.preferred, decode.allocate):
        with contextlib.suppress(Malformed):
            parse(body)


def test_a_negative_size_is_malformed() -> None:
    one = messages.ContainerPreferredAllocationRequest(allocation_size=-1)
    body = messages.PreferredAllocationRequest(container_requests=[one]).SerializeToString()
    with pytest.raises(Malformed, match="negative"):
        decode.preferred(body)
