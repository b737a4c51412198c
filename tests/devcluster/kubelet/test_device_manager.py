"""The simulated kubelet hands devices out as a real one does, its faults included."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpushare.devcluster.kubelet.device_manager import DeviceManager, PluginError, Rejected

Object = dict[str, Any]
GPUS = "example.com/gpu"
NAMES = [f"unit-{number:02}" for number in range(10)]


class Plugin:
    """`prefers`: its answer, or the sentence it refuses with. `meanwhile` happens when Allocate is under way."""

    def __init__(self) -> None:
        self.prefers: list[str] | str = []
        self.refuses = ""
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.offered: list[str] = []
        self.must: list[str] = []

    async def prefer(self, available: list[str], must: list[str], size: int) -> list[str]:
        self.offered, self.must = available, must
        if isinstance(self.prefers, str):
            raise PluginError(self.prefers)
        return self.prefers

    async def allocate(self, ids: list[str]) -> dict[str, str]:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            await happens()
        if self.refuses:
            raise PluginError(self.refuses)
        return {"UNITS": ",".join(sorted(ids))}


class Kubelet:
    def __init__(self) -> None:
        self.active: list[str] = []
        self.plugin = Plugin()
        self.manager = DeviceManager(lambda: self.active, random.Random(7))
        self.manager.connected(GPUS, self.plugin, prefers=True)
        self.manager.listed(GPUS, dict.fromkeys(NAMES, True))

    async def take(
        self, uid: str, *apps: int, inits: list[int] | None = None, sidecars: list[int] | None = None
    ) -> None:
        self.active.append(uid)
        await self.manager.admit(pod(uid, *apps, inits=inits, sidecars=sidecars))

    def units(self, uid: str, container: str = "app-0") -> set[str]:
        return {name for key, given in self.manager.given.items() if key[:2] == (uid, container) for name in given.ids}


def pod(uid: str, *apps: int, inits: list[int] | None = None, sidecars: list[int] | None = None) -> Object:
    before = [container(f"init-{i}", n) for i, n in enumerate(inits or ())]
    before += [container(f"side-{i}", n) | {"restartPolicy": "Always"} for i, n in enumerate(sidecars or ())]
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "default"},
        "spec": {"initContainers": before, "containers": [container(f"app-{i}", n) for i, n in enumerate(apps)]},
    }


def container(name: str, amount: int) -> Object:
    return {"name": name, "resources": {"limits": {GPUS: str(amount)}}}


async def test_what_the_plugin_prefers_is_taken_and_its_answer_kept() -> None:
    kubelet = Kubelet()
    kubelet.plugin.prefers = ["unit-03", "unit-08"]
    await kubelet.take("a", 2)
    assert kubelet.units("a") == {"unit-03", "unit-08"}
    assert kubelet.manager.environment("a", "app-0") == {"UNITS": "unit-03,unit-08"}
    assert kubelet.manager.environment("a", "app-1") == {}


async def test_a_preferred_answer_that_is_too_short_is_filled_up_with_anything() -> None:
    kubelet = Kubelet()
    kubelet.plugin.prefers = ["unit-03"]
    await kubelet.take("a", 3)
    assert "unit-03" in kubelet.units("a")
    assert len(kubelet.units("a")) == 3


async def test_units_of_init_containers_come_first_and_must_be_included_in_the_answer() -> None:
    kubelet = Kubelet()
    kubelet.plugin.prefers = ["unit-05", "unit-06", "unit-07"]
    await kubelet.take("a", 3, inits=[2])
    first = kubelet.units("a", "init-0")
    assert set(kubelet.plugin.must) == first
    assert first < kubelet.units("a")
    assert set(kubelet.plugin.offered) == set(NAMES)


async def test_a_sidecar_keeps_what_it_drew_and_the_app_gets_the_rest() -> None:
    kubelet = Kubelet()
    await kubelet.take("a", 2, inits=[4], sidecars=[3])
    pool, sidecar, app = (kubelet.units("a", name) for name in ("init-0", "side-0", "app-0"))
    assert sidecar < pool
    assert not sidecar & app
    assert len(app & pool) == 1


async def test_the_list_of_who_has_what_leaves_ordinary_init_containers_out() -> None:
    kubelet = Kubelet()
    await kubelet.take("a", 1, inits=[4], sidecars=[1])
    listed = kubelet.manager.pod_resources([pod("a", 1, inits=[4], sidecars=[1])])
    assert [container for _, container, _ in listed] == ["side-0", "app-0"]


async def test_what_an_allocate_under_way_was_promised_is_lost_by_a_list_after_a_pod_has_ended() -> None:
    """kubelet makes its marks anew from what it has given, and that one is not given yet."""
    kubelet = Kubelet()
    await kubelet.take("ended", 1)

    async def look() -> None:
        kubelet.active.remove("ended")
        kubelet.manager.pod_resources([])

    kubelet.plugin.meanwhile = look
    kubelet.plugin.prefers = ["unit-04"]
    await kubelet.take("a", 1)
    await kubelet.take("b", 1)
    assert kubelet.units("a") == kubelet.units("b") == {"unit-04"}


@pytest.mark.parametrize("question", ["prefer", "allocate"])
async def test_a_refusal_of_the_plugin_rejects_the_pod_in_kubelets_words(question: str) -> None:
    kubelet = Kubelet()
    if question == "prefer":
        kubelet.plugin.prefers = "no"
    else:
        kubelet.plugin.refuses = "no"
    with pytest.raises(Rejected, match=r"^Allocate failed due to no, which is unexpected$"):
        await kubelet.take("a", 1)
    assert kubelet.units("a") == set()


async def test_more_than_is_free_is_rejected_without_asking_the_plugin() -> None:
    kubelet = Kubelet()
    await kubelet.take("a", 8)
    kubelet.plugin.offered = []
    with pytest.raises(Rejected, match=r"unavailable for example.com/gpu. Requested: 3, Available: 2"):
        await kubelet.take("b", 3)
    assert kubelet.plugin.offered == []


async def test_after_its_restart_running_containers_go_on_and_others_fail_until_the_plugin_is_back() -> None:
    kubelet = Kubelet()
    await kubelet.take("a", 2)
    kept = kubelet.units("a")
    kubelet.manager = DeviceManager(lambda: kubelet.active, random.Random(7), kubelet.manager.checkpoint())
    await kubelet.manager.admit(pod("a", 2), running=["app-0"])
    assert kubelet.units("a") == kept
    with pytest.raises(Rejected, match="no healthy devices present"):
        await kubelet.take("b", 1)
    kubelet.manager.connected(GPUS, kubelet.plugin, prefers=True)
    kubelet.manager.listed(GPUS, dict.fromkeys(NAMES, True))
    await kubelet.take("c", 8)
    assert not kept & kubelet.units("c")


async def test_units_listed_unhealthy_count_in_the_capacity_only_and_are_not_given() -> None:
    kubelet = Kubelet()
    kubelet.manager.listed(GPUS, {name: name < "unit-04" for name in NAMES})
    assert (kubelet.manager.capacity(), kubelet.manager.allocatable()) == ({GPUS: 10}, {GPUS: 4})
    await kubelet.take("a", 4)
    assert kubelet.units("a") == set(NAMES[:4])


async def test_a_plugin_that_is_gone_leaves_its_devices_unhealthy_at_once() -> None:
    kubelet = Kubelet()
    kubelet.manager.disconnected(GPUS)
    assert (kubelet.manager.capacity(), kubelet.manager.allocatable()) == ({GPUS: 10}, {GPUS: 0})
