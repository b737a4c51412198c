"""Whose a process is, by its cgroup, as kubelets and container runtimes write it."""

import pytest

from gpushare.node.usage import cgroups
from gpushare.node.usage.model import Owner

UID = "0b3f1c52-7a1e-4c0d-9f6e-2b8a51f0d3c4"
UNDERLINED = UID.replace("-", "_")
OUTER = "77d1a0c3-1111-4222-8333-944455556666"
STATIC = "6f1b0a9c8d7e6f5a4b3c2d1e0f9a8b7c"
ID = "3f9a" * 16
OTHER = "b7c1" * 16
OURS = Owner(UID, ID)
BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERLINED}.slice"

V1 = f"""12:pids:/kubepods/burstable/pod{UID}/{ID}
11:memory:/kubepods/burstable/pod{UID}/{ID}
10:cpu,cpuacct:/kubepods/burstable/pod{UID}/{ID}
1:name=systemd:/kubepods/burstable/pod{UID}/{ID}
0::/
"""
V1_SYSTEMD = f"""11:devices:{BURSTABLE}/cri-containerd-{ID}.scope
1:name=systemd:{BURSTABLE}/cri-containerd-{ID}.scope
0::/system.slice/containerd.service
"""


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        pytest.param(f"0::{BURSTABLE}/cri-containerd-{ID}.scope\n", OURS, id="containerd with systemd"),
        pytest.param(f"0::{BURSTABLE}/crio-{ID}.scope\n", OURS, id="CRI-O with systemd"),
        pytest.param(f"0::{BURSTABLE}/crio-{ID}.scope/container\n", OURS, id="CRI-O, a cgroup below its container"),
        pytest.param(f"0::{BURSTABLE}/docker-{ID}.scope\n", OURS, id="docker with systemd"),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{UNDERLINED}.slice/cri-containerd-{ID}.scope\n", OURS, id="guaranteed"
        ),
        pytest.param(
            "0::/kubepods.slice/kubepods-besteffort.slice/"
            f"kubepods-besteffort-pod{UNDERLINED}.slice/cri-containerd-{ID}.scope/init.scope\n",
            OURS,
            id="best effort, and systemd in the container",
        ),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/{ID}\n", OURS, id="cgroupfs"),
        pytest.param(f"0::/kubepods/pod{UID}/{ID}/worker/7\n", OURS, id="cgroupfs, guaranteed, two cgroups below"),
        pytest.param(f"0::/kubepods/besteffort/pod{UID}/crio-{ID}\n", OURS, id="CRI-O with cgroupfs"),
        pytest.param(f"0::/machine/kubepods/burstable/pod{UID}/{ID}\n", OURS, id="another root, cgroupfs"),
        pytest.param(
            "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            f"kubelet-kubepods-burstable-pod{UNDERLINED}.slice/cri-containerd-{ID}.scope\n",
            OURS,
            id="another root, systemd",
        ),
        pytest.param(V1, OURS, id="version 1 with cgroupfs"),
        pytest.param(V1_SYSTEMD, OURS, id="version 1 with systemd, and a version 2 that says nothing"),
        pytest.param(f"0::/kubepods/burstable/pod{STATIC}/{ID}\n", Owner(STATIC, ID), id="a static pod, cgroupfs"),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope\n", Owner(STATIC, ID), id="static"
        ),
        pytest.param(
            f"0::/kubepods/burstable/pod{OUTER}/{OTHER}/docker/{OTHER}/kubelet/kubepods/burstable/pod{UID}/{ID}\n",
            OURS,
            id="a node in a pod of another cluster",
        ),
        pytest.param(
            f"0::/docker/{OTHER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERLINED}.slice/"
            f"cri-containerd-{ID}.scope\n",
            OURS,
            id="a node in a container",
        ),
        pytest.param(
            f"0::/system.slice/containerd.service/kubepods-burstable-pod{UNDERLINED}.slice:cri-containerd:{ID}\n",
            OURS,
            id="kubelet with systemd, containerd without",
        ),
        pytest.param(
            f"0::/../../kubepods-burstable-pod{UNDERLINED}.slice/cri-containerd-{ID}.scope\n",
            OURS,
            id="seen from another pod, systemd",
        ),
        pytest.param(f"0::/../../pod{UID}/{ID}\n", OURS, id="seen from another pod, cgroupfs"),
        pytest.param(f"0::/../../../burstable/pod{UID}/{ID}\n", OURS, id="seen from a pod of another quality"),
        pytest.param(f"0::/../cri-containerd-{ID}.scope\n", Owner("", ID), id="seen from its own pod"),
    ],
)
def test_the_cgroup_of_a_container_names_its_pod_and_its_id(text: str, owner: Owner) -> None:
    assert cgroups.owner(cgroups.owners(text), {UID, STATIC}) == owner


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("0::/\n", id="the root"),
        pytest.param("0::/init.scope\n", id="systemd itself"),
        pytest.param("0::/system.slice/kubelet.service\n", id="kubelet"),
        pytest.param("0::/user.slice/user-1000.slice/session-2.scope\n", id="somebody who has logged in"),
        pytest.param(f"0::/system.slice/docker-{ID}.scope\n", id="a container without a pod"),
        pytest.param(f"0::/docker/{ID}\n", id="a container without a pod, cgroupfs"),
        pytest.param(f"0::{BURSTABLE}\n", id="in the pod, in no container"),
        pytest.param(f"0::{BURSTABLE}/crio-conmon-{ID}.scope\n", id="the monitor of a container"),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/crio-conmon-{ID}\n", id="the same with cgroupfs"),
        pytest.param(f"0::{BURSTABLE}/cri-containerd-{ID[:40]}.scope\n", id="an id that is cut off"),
        pytest.param(f"0::/kubepods/burstable/pod{UID[:30]}/{ID}\n", id="a uid that is cut off"),
        pytest.param(f"0::/home/pod{UID}/{ID}\n", id="a folder that kubelet did not make"),
        pytest.param(f"0::/podrunner-{ID}.scope/pod{UID}\n", id="names that look alike"),
        pytest.param("no colons here", id="no cgroup file"),
        pytest.param(
            f"2:cpu:/kubepods/pod{UID}/{ID}\n1:memory:/kubepods/pod{OUTER}/{OTHER}\n", id="lines that contradict"
        ),
        pytest.param(
            f"0::/kubepods/pod{OUTER}/{OTHER}/kubelet/kubepods/pod{UID}\n", id="in an inner pod, in no container"
        ),
    ],
)
def test_what_names_no_container_for_sure_is_of_nobody(text: str) -> None:
    assert cgroups.owner(cgroups.owners(text), {UID, STATIC}) is None


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"{BURSTABLE}/cri-containerd-{ID}.scope", id="systemd"),
        pytest.param(f"/kubepods/burstable/pod{UID}/{ID}", id="cgroupfs"),
        pytest.param(f"/../../pod{UID}/{ID}", id="seen from another pod"),
    ],
)
@pytest.mark.parametrize(
    "below",
    [
        pytest.param(f"kubepods.slice/kubepods-pod{OUTER}.slice/cri-containerd-{OTHER}.scope", id="systemd"),
        pytest.param(f"kubepods/pod{OUTER}/{OTHER}", id="cgroupfs"),
        pytest.param(f"../pod{OUTER}/{OTHER}", id="dots"),
        pytest.param(f"kubepods-pod{OUTER}.slice:cri-containerd:{OTHER}", id="mixed"),
        pytest.param(f"kubepods-pod{OUTER}.slice", id="a pod without a container"),
    ],
)
def test_a_container_cannot_pass_its_processes_off_as_those_of_another_pod(path: str, below: str) -> None:
    assert cgroups.owner(cgroups.owners(f"0::{path}/{below}\n"), {UID, OUTER}) == OURS


def test_cgroups_that_a_container_makes_for_some_controllers_only_do_not_hide_it() -> None:
    text = f"2:cpu:/kubepods/pod{UID}/{ID}/kubepods/pod{OUTER}/{OTHER}\n1:memory:/kubepods/pod{UID}/{ID}\n"
    assert cgroups.owner(cgroups.owners(text), {UID, OUTER}) == OURS
