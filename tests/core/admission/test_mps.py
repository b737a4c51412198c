"""What a container with an MPS share finds when it starts, and what people wrote themselves stays."""

import copy
from typing import Any

import pytest

from gpushare.core.admission import containers, pinning
from gpushare.core.facts import names

Object = dict[str, Any]
PIPES = {"name": "gpushare-mps", "mountPath": "/tmp/nvidia-mps"}
MEMORY = {"name": "gpushare-shm", "mountPath": "/dev/shm"}
VOLUMES = [
    {"name": "gpushare-mps", "hostPath": {"path": "/tmp/nvidia-mps", "type": "Directory"}},
    {"name": "gpushare-shm", "hostPath": {"path": "/dev/shm", "type": "Directory"}},
]


def one(name: str = "main", resource: str = names.MPS_GPU, **more: Any) -> Object:
    return {"name": name, "resources": {"limits": {resource: "1"}}, **more}


def admitted(*apps: Object, notes: Object | None = None, inits: tuple[Object, ...] = (), **spec: Any) -> Object:
    """The spec that comes of these containers."""
    pod = {
        "metadata": {"annotations": notes},
        "spec": {"containers": list(apps), "initContainers": list(inits), **spec},
    }
    pod = copy.deepcopy(pod)
    containers.add(pod, pinning.pin(pod))
    assert pinning.pin(pod) == [], "a second run adds nothing"
    found: Object = pod["spec"]
    return found


def env(container: Object) -> dict[str, str]:
    """By name, the value or the annotation that it is taken from."""
    return {entry["name"]: entry.get("value") or _annotation(entry) for entry in container["env"]}


def _annotation(entry: Object) -> str:
    path: str = entry["valueFrom"]["fieldRef"]["fieldPath"]
    return path.removeprefix("metadata.annotations['").removesuffix("']")


def test_an_mps_share_is_told_the_way_to_the_daemon_and_its_limit() -> None:
    spec = admitted(one())
    (main,) = spec["containers"]
    told = env(main)
    assert told[names.MPS_PIPE] == "/tmp/nvidia-mps"
    assert told[names.MPS_LIMIT] == "gpushare.io/mps-limit-0"
    assert names.MPS_PERCENTAGE not in told
    assert main["env"][-1]["name"] == names.VISIBLE_DEVICES
    assert main["volumeMounts"] == [PIPES, MEMORY]
    assert spec["volumes"] == VOLUMES


def test_the_limit_belongs_to_the_gpus_of_the_same_container() -> None:
    spec = admitted(one("a"), one("b"), inits=(one("c"),))
    for container in (*spec["containers"], *spec["initContainers"]):
        told = env(container)
        assert told[names.MPS_LIMIT].removeprefix(names.MPS_LIMIT_PREFIX) == told[names.VISIBLE_DEVICES].removeprefix(
            names.VISIBLE_PREFIX
        )
    assert spec["volumes"] == VOLUMES


def test_threads_are_told_only_if_the_pod_says_how_many() -> None:
    (main,) = admitted(one(), notes={names.MPS_THREADS: "30"})["containers"]
    assert env(main)[names.MPS_PERCENTAGE] == names.MPS_THREADS


def test_whoever_asks_for_no_mps_share_gets_nothing_of_this() -> None:
    spec = admitted(one("memory", names.GPU_MEM), {"name": "plain"}, notes={names.MPS_THREADS: "30"})
    memory, plain = spec["containers"]
    assert {names.MPS_PIPE, names.MPS_LIMIT, names.MPS_PERCENTAGE}.isdisjoint(env(memory))
    assert plain == {"name": "plain"}
    assert "volumes" not in spec
    assert "volumeMounts" not in memory


def test_ketis_own_example_keeps_its_volume_and_gets_no_second_one() -> None:
    volume = {"name": "nvidia-mps", "hostPath": {"path": "/tmp/nvidia-mps"}}
    mount = {"name": "nvidia-mps", "mountPath": "/tmp/nvidia-mps"}
    spec = admitted(one("nbody1", volumeMounts=[mount]), hostIPC=True, volumes=[volume])
    assert spec["volumes"] == [volume]
    assert spec["containers"][0]["volumeMounts"] == [mount]
    assert spec["hostIPC"] is True
    assert env(spec["containers"][0])[names.MPS_PIPE] == "/tmp/nvidia-mps"


@pytest.mark.parametrize("name", [names.MPS_PIPE, names.MPS_LIMIT, names.MPS_PERCENTAGE])
def test_an_entry_written_by_hand_is_not_doubled(name: str) -> None:
    (main,) = admitted(one(env=[{"name": name, "value": "mine"}]), notes={names.MPS_THREADS: "30"})["containers"]
    assert [entry.get("value") for entry in main["env"] if entry["name"] == name] == ["mine"]
    assert {names.MPS_PIPE, names.MPS_LIMIT, names.MPS_PERCENTAGE} <= env(main).keys()


@pytest.mark.parametrize("folder", ["/dev/shm", "/dev/shm/"])
def test_shared_memory_of_its_own_stays(folder: str) -> None:
    own = {"name": "mine", "mountPath": folder}
    spec = admitted(one(volumeMounts=[own]), volumes=[{"name": "mine", "emptyDir": {}}])
    assert spec["containers"][0]["volumeMounts"] == [own, PIPES]
    assert spec["volumes"] == [{"name": "mine", "emptyDir": {}}, VOLUMES[0]]


def test_a_container_that_others_add_later_uses_the_volumes_that_are_there() -> None:
    spec = admitted(one("first"))
    again = admitted(one("late"), *spec["containers"], volumes=spec["volumes"])
    assert again["volumes"] == VOLUMES
    assert again["containers"][0]["volumeMounts"] == [PIPES, MEMORY]
    assert again["containers"][1:] == spec["containers"]


def test_what_was_pinned_before_is_left_as_it_is() -> None:
    """By an older version, or by hand."""
    entry = containers.reference(names.VISIBLE_DEVICES, f"{names.VISIBLE_PREFIX}0")
    spec = admitted(one(env=[entry]))
    assert spec["containers"] == [one(env=[entry])]
    assert "volumes" not in spec


@pytest.mark.parametrize("amount", ["0", 0, "0k", None, "many"])
def test_a_container_that_asks_for_no_share_gets_no_folder_of_the_node(amount: object) -> None:
    spec = admitted({"name": "main", "resources": {"limits": {names.MPS_GPU: amount}}})
    (main,) = spec["containers"]
    assert "volumes" not in spec, "on a node without MPS the container would wait for them for ever"
    assert "volumeMounts" not in main
    assert names.MPS_PIPE not in env(main)
