"""Whether a /proc shows the processes of the node, in all the places in which a node part may run."""

import pytest

from gpushare.node.usage import sight
from gpushare.node.usage.sight import FIRST_NAMESPACE, NOT_SEEN, Seen

OTHER = "pid:[4026532713]"
POD = "0::/kubepods/burstable/pod0b3f1c52-7a1e-4c0d-9f6e-2b8a51f0d3c4/" + "3f9a" * 16 + "\n"


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(Seen(FIRST_NAMESPACE, 1, "0::/system.slice/a.service\n", "0::/init.scope\n"), id="a process"),
        pytest.param(Seen(FIRST_NAMESPACE, 1, "0::/\n", "0::/\n"), id="a process on a machine without cgroups"),
        pytest.param(Seen(FIRST_NAMESPACE, 1, "0::/\n", "0::/../../../../init.scope\n"), id="a pod with hostPID"),
        pytest.param(Seen(OTHER, 2, "0::/\n", "0::/../../../../init.scope\n"), id="the host's /proc is mounted"),
        pytest.param(Seen(OTHER, 1, POD, "0::/init.scope\n"), id="hostPID on a node that is a container"),
        pytest.param(Seen(OTHER, 1, "0::/\n", "0::/../../../..\n"), id="the same with a cgroup namespace of its own"),
    ],
)
def test_where_the_nodes_processes_are_seen_it_is_known_whose_they_are(seen: Seen) -> None:
    assert sight.unknown(seen, told=False) == ""


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(Seen(OTHER, 1, POD, POD), id="cgroups of the node"),
        pytest.param(Seen(OTHER, 1, "0::/\n", "0::/\n"), id="a cgroup namespace of its own"),
        pytest.param(Seen(OTHER, 1, "1:cpu:/docker/x\n", "1:cpu:/docker/x\n"), id="a container without a pod"),
        pytest.param(
            Seen(OTHER, 1, "0::/\n", f"0::/../cri-containerd-{'b7c1' * 16}.scope\n"), id="its pod shares processes"
        ),
    ],
)
def test_a_pod_that_sees_only_itself_does_not_know_and_says_what_to_set(seen: Seen) -> None:
    assert sight.unknown(seen, told=False) == NOT_SEEN
    assert "hostPID: true" in NOT_SEEN


def test_a_proc_that_a_person_names_is_believed_where_nobody_can_tell() -> None:
    assert sight.unknown(Seen(OTHER, 1, "0::/\n", "0::/\n"), told=True) == ""


def test_a_proc_that_a_person_names_is_not_believed_where_it_shows_a_pod() -> None:
    assert sight.unknown(Seen(OTHER, 1, POD, POD), told=True) == NOT_SEEN
