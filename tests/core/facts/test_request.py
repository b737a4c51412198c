"""What a pod asks is read once, and what cannot be read is refused with a sentence."""

from typing import Any

import pytest

from gpushare.core.facts import names, request
from gpushare.core.facts.kinds import MEMORY, WHOLE
from gpushare.core.facts.model import Pin, Refusal, Request, Role
from tests.support.builders import api_pod, asks, container, env_of, pod


def refused(**more: Any) -> Refusal:
    asked = pod(direct=False, **more).request
    assert isinstance(asked, Refusal), asked
    return asked


def test_a_container_asks_units_on_one_gpu() -> None:
    (share,) = asks(3500).shares
    assert (share.container, share.units, share.gpus, share.kind, share.role) == ("c0", 3500, 1, MEMORY, Role.APP)


def test_zero_is_no_request() -> None:
    assert pod(0).request is None
    assert pod(containers=[container("a", whole="0")]).request is None


def test_a_pod_without_our_resources_asks_nothing() -> None:
    assert pod(containers=[container("a")]).request is None


def test_shares_come_in_the_order_in_which_kubelet_starts_containers() -> None:
    asked = asks(1, 2, init=[3], sidecars=[4])
    assert [(s.role, s.units, s.position) for s in asked.shares] == [
        (Role.INIT, 3, 2), (Role.SIDECAR, 4, 3), (Role.APP, 1, 0), (Role.APP, 2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["split", "split_label"])
def test_annotation_or_label_splits_each_container(how: str) -> None:
    assert [(s.gpus, s.each) for s in asks(6, 4, **{how: "2"}).shares] == [(2, 3), (2, 2)]


def test_the_annotation_wins_over_the_label() -> None:
    assert asks(6, split="3", split_label="2").shares[0].gpus == 3


def test_a_count_limit_asks_whole_gpus() -> None:
    share = asks(whole=2).shares[0]
    assert (share.kind, share.gpus, share.units, share.each) == (WHOLE, 2, 0, 0)


@pytest.mark.parametrize(
    ("memory", "code", "message", "says"),
    [
        ("4Gi", "NotMemory", "aliyun.com/gpu-mem counts MiB, not bytes", 'Write "4096"'),
        ("1e400", "NotMemory", "aliyun.com/gpu-mem counts MiB, not bytes", "read as 1000000000000000000… MiB"),
        ("10G", "NotMemory", "aliyun.com/gpu-mem counts MiB, not bytes", 'Write "9537"'),
        ("1048577", "NotMemory", "aliyun.com/gpu-mem counts MiB, not bytes", "read as 1048577 MiB"),
        ("-5", "NotWhole", "aliyun.com/gpu-mem is not a whole number", '"-5"'),
        ("1500m", "NotWhole", "aliyun.com/gpu-mem is not a whole number", "1500m"),
    ],
)
def test_what_is_no_amount_of_units_is_refused(memory: str, code: str, message: str, says: str) -> None:
    refusal = refused(containers=[container("main", memory)])
    assert (refusal.code, refusal.message, refusal.forever) == (code, message, True)
    assert says in refusal.detail
    assert "main" in refusal.detail


def test_one_tib_is_the_most_in_either_unit() -> None:
    assert isinstance(pod(1 << 20, unit="MiB").request, Request)
    assert isinstance(pod(1 << 10, unit="GiB").request, Request)
    assert refused(containers=[container("a", 1025)], unit="GiB").code == "NotMemory"


@pytest.mark.parametrize("split", ["0", "-1", "two", "1.5", "", "1025", " 2", "9" * 30])
def test_a_strange_split_is_refused(split: str) -> None:
    assert refused(containers=[container("a", 6)], split=split).message == "aliyun.com/gpu-count is not a whole number"


def test_an_uneven_split_is_refused_with_numbers_that_would_do() -> None:
    refusal = refused(containers=[container("a", 20001)], split=2)
    assert refusal.message == "20001 MiB cannot be split evenly over 2 GPUs"
    assert "20000 or 20002" in refusal.detail


def test_both_limits_on_one_container_are_refused_but_not_on_two() -> None:
    assert refused(containers=[container("a", 5, whole=1)]).code == "BothLimits"
    assert isinstance(pod(5, whole=1).request, Request)


def test_unknown_policies_and_units_are_refused() -> None:
    assert refused(containers=[container("a", 5)], policy="binpak").message.startswith(names.POLICY)
    assert refused(containers=[container("a", 5)], unit="MB").message.startswith(names.MEMORY_UNIT)


def test_the_pods_own_unit_wins_over_the_extenders() -> None:
    assert asks(5, default_unit="GiB").unit == "GiB"
    assert asks(5, default_unit="GiB", unit="MiB").unit == "MiB"


def test_pins_are_read_from_the_pods_own_env_and_never_computed() -> None:
    moved = container("a", 5, visible="gpushare.io/visible-7")
    asked = asks(containers=[moved], direct=False)
    assert (asked.pin, asked.shares[0].visible) == (Pin.DIRECT, "gpushare.io/visible-7")


def test_the_last_env_of_a_name_counts() -> None:
    one = container("a", 5, visible="gpushare.io/visible-0")
    assert one.env is not None
    one.env.append(env_of("somebody/else"))
    assert asks(containers=[one], direct=False).pin is Pin.PLUGIN
    one.env.append(env_of("gpushare.io/visible-1"))
    assert asks(containers=[one], direct=False).shares[0].visible == "gpushare.io/visible-1"


def test_containers_that_disagree_about_their_pin_go_nowhere() -> None:
    some = [container("a", 5, visible="gpushare.io/visible-0"), container("b", 5)]
    same = [container("a", 5, visible="gpushare.io/visible-0"), container("b", 5, visible="gpushare.io/visible-0")]
    assert asks(containers=some, direct=False).pin is None
    assert asks(containers=same, direct=False).pin is None


def test_equal_requests_of_different_pods_have_one_shape() -> None:
    assert asks(5, 6).shape == asks(5, 6).shape != asks(6, 5, split=1).shape


def test_what_else_counts_of_a_pod_is_read_from_its_status() -> None:
    seen = pod(5, unschedulable="0/3 nodes", nominated="n", claim_volume=True, terminating=True, priority=7)
    assert (seen.unschedulable, seen.nominated, seen.slow_volumes, seen.terminating) == ("0/3 nodes", "n", True, True)
    assert (seen.priority, seen.spec_units) == (7, 5)
    assert pod(5, phase="Failed", reason="UnexpectedAdmissionError").failed_reason == "UnexpectedAdmissionError"


def test_only_the_annotations_that_choose_gpus_are_kept() -> None:
    notes = {names.ALIYUN_IDX: "0", "kubectl.kubernetes.io/last-applied-configuration": "x" * 9999}
    assert pod(5, notes=notes).annotations == ((names.ALIYUN_IDX, "0"),)


def test_null_lists_are_no_containers() -> None:
    empty = api_pod(5)
    empty.spec.containers = empty.spec.init_containers = None
    assert request.parse(empty, None) is None
