"""The CDI file: as nvidia-ctk makes it if that is there, else of device nodes; complete, and removed at the end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gpushare.gpu import simulated
from gpushare.gpu.device import Device
from gpushare.node.nvidia import cdi_file, host
from gpushare.node.nvidia.cdi_file import CdiFile
from gpushare.node.nvidia.rules import cdi_spec
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.node.nvidia.rules.settings import Settings
from gpushare.obs.errors import UserError
from tests.node.nvidia import made
from tests.support.wait import PATIENCE

CDI = made.set_to(strategies=("cdi-cri",), nvidia_ctk="/usr/bin/nvidia-cdi-hook")
GPUS = made.gpus(2)
NAME = "k8s.device-plugin.nvidia.com-gpu.json"
MADE = {
    "cdiVersion": "0.5.0",
    "kind": "k8s.device-plugin.nvidia.com/gpu",
    "containerEdits": {
        "mounts": [{"hostPath": "{here}/usr/lib/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1"}]
    },
    "devices": [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{number}"}]}}
        for name, number in (("GPU-0", 4), ("GPU-1", 5), ("all", 4))
    ],
}
ODD: dict[str, Any] = {
    "devices are a number": {"devices": 5},
    "devices are words": {"devices": ["GPU-0", "GPU-1"]},
    "a device's name is a list": {"devices": [{"name": []}]},
    "a mount of nothing": {"containerEdits": {"mounts": [{}]}},
    "mounts are words": {"containerEdits": {"mounts": ["/usr"]}},
    "a mount of a number": {"containerEdits": {"mounts": [{"hostPath": 5}]}},
    "edits are a list": {"containerEdits": ["mounts"]},
    "a device node of nothing": {"containerEdits": {"deviceNodes": [{}]}},
}


class Machine:
    """A file system with a folder for CDI files, some device nodes, and perhaps an nvidia-ctk."""

    def __init__(self, root: Path) -> None:
        self.root, self.cdi = root, root / "var/run/cdi"
        self.cdi.mkdir(parents=True)
        self.dev = root / "dev"
        self.dev.mkdir()
        for name in ("nvidiactl", "nvidia-uvm"):
            (self.dev / name).touch()
        self.file = CdiFile(self.cdi, root, limit=5.0)

    def nvidia_ctk(self, *lines: str, below: str = "usr/bin") -> None:
        """A program that does this; what it was called with is in a file."""
        program = self.root / below / "nvidia-ctk"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("\n".join(("#!/bin/sh", f'echo "$@" > {self.root}/asked', *lines)))
        program.chmod(0o755)

    def prints(self, spec: Any, **more: str) -> None:
        (self.root / "spec").write_text(json.dumps(spec))
        self.nvidia_ctk(f"cat {self.root}/spec", **more)

    @property
    def asked(self) -> list[str]:
        return (self.root / "asked").read_text().split()

    async def written(self, settings: Settings = CDI) -> dict[str, Any]:
        await self.file.keep(settings, GPUS)
        return dict(json.loads((self.cdi / NAME).read_text()))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_without_nvidia_ctk_the_spec_has_the_device_nodes_that_exist(machine: Machine) -> None:
    assert await machine.written() == {
        "cdiVersion": "0.5.0",
        "kind": "k8s.device-plugin.nvidia.com/gpu",
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
        },
        "devices": [
            {"name": "GPU-0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia4"}]}},
            {"name": "GPU-1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia5"}]}},
        ],
    }


async def test_devices_have_the_names_that_containers_are_given(machine: Machine) -> None:
    by_index = made.set_to(strategies=("cdi-annotations",), by_index=True, dev_root="/run/nvidia/driver")
    spec = await machine.written(by_index)
    assert [device["name"] for device in spec["devices"]] == ["0", "1"]
    assert spec["devices"][0]["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia4", "hostPath": "/run/nvidia/driver/dev/nvidia4"}
    ]


async def test_what_nvidia_ctk_makes_is_preferred(machine: Machine) -> None:
    machine.prints(MADE)
    assert await machine.written() == MADE
    assert machine.asked[:2] == ["cdi", "generate"]
    assert {
        "--format=json", "--mode=nvml", "--vendor=k8s.device-plugin.nvidia.com", "--class=gpu",
        "--device-name-strategy=uuid", "--driver-root=/", "--nvidia-ctk-path=/usr/bin/nvidia-cdi-hook",
    } <= set(machine.asked)  # fmt: skip


async def test_paths_of_a_mounted_driver_become_paths_of_the_host(machine: Machine) -> None:
    here = machine.root / "driver-root"
    text = json.dumps(MADE).replace("{here}", "/driver-root")
    machine.prints(json.loads(text), below="driver-root/usr/bin")
    spec = await machine.written(
        made.set_to(strategies=("cdi-cri",), driver_root="/run/nvidia/driver", dev_root="/run/nvidia/driver")
    )
    assert here.is_dir()
    assert "--driver-root=/driver-root" in machine.asked
    (mount,) = spec["containerEdits"]["mounts"]
    assert mount["hostPath"] == "/run/nvidia/driver/usr/lib/libcuda.so.1"
    assert spec["devices"][1]["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia5", "hostPath": "/run/nvidia/driver/dev/nvidia5"}
    ]


@pytest.mark.parametrize(
    "does",
    [
        ["echo 'cannot initialize NVML' >&2", "exit 1"],
        ["echo no JSON"],
        ["echo '[]'"],
        ['echo \'{"kind": "nvidia.com/gpu", "devices": []}\''],
        ['echo \'{"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": [{"name": "GPU-0"}]}\''],
        ["exec sleep 60"],
        *([f"echo '{json.dumps(MADE | odd)}'"] for odd in ODD.values()),
        ["head -c 200000 /dev/zero | tr '\\\\0' '['"],
    ],
    ids=["fails", "prints nonsense", "prints a list", "another vendor", "a GPU is missing", "hangs", *ODD, "deep"],
)
async def test_an_nvidia_ctk_that_cannot_be_used_is_done_without(machine: Machine, does: list[str]) -> None:
    machine.nvidia_ctk(*does)
    machine.file._limit = 0.3 if "sleep" in does[0] else 5.0
    assert [device["name"] for device in (await machine.written())["devices"]] == ["GPU-0", "GPU-1"]


async def test_an_nvidia_ctk_that_cannot_even_be_killed_is_done_without(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InTheDriver:
        returncode, kills = None, 0

        def kill(self) -> None:
            self.kills += 1

        async def wait(self) -> None:
            await asyncio.Event().wait()

        communicate = wait

    stuck = InTheDriver()

    async def start(*_: object, **__: object) -> InTheDriver:
        return stuck

    machine.nvidia_ctk("exit 1")
    machine.file._limit = 0.01
    monkeypatch.setattr(cdi_file, "END_SECONDS", 0.01)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    async with asyncio.timeout(PATIENCE):
        assert len((await machine.written())["devices"]) == 2
    assert stuck.kills == 1


async def test_a_spec_is_written_only_if_a_strategy_needs_it_and_something_changed(machine: Machine) -> None:
    await machine.file.keep(made.DEFAULT, GPUS)
    assert list(machine.cdi.iterdir()) == []
    await machine.written()
    (machine.cdi / NAME).write_text("{}")
    assert await machine.written() == {}
    await machine.file.keep(CDI, GPUS[:1])
    assert [device["name"] for device in json.loads((machine.cdi / NAME).read_text())["devices"]] == ["GPU-0"]
    assert machine.file.uuids == {"GPU-0"}


async def test_at_the_end_nothing_is_left(machine: Machine) -> None:
    await machine.written()
    machine.file.remove()
    machine.file.remove()
    assert list(machine.cdi.iterdir()) == []


async def test_a_folder_that_is_not_mounted_is_named(machine: Machine) -> None:
    machine.cdi.rmdir()
    with pytest.raises(UserError) as caught:
        await machine.file.keep(CDI, GPUS)
    assert caught.value.what == f"cannot write the CDI spec {machine.cdi / NAME}"
    assert "deploy/nvidia-ds.yaml" in caught.value.way
    machine.cdi.mkdir()
    assert await machine.written()


def test_a_gpu_whose_node_is_unknown_is_left_out_of_the_spec() -> None:
    nameless = [made.gpus(1)[0], Gpu("GPU-1", 1)]
    assert [device["name"] for device in cdi_spec.of_nodes(CDI, nameless, [])["devices"]] == ["GPU-0"]


# NUMA


@pytest.mark.parametrize(
    ("bus", "folder", "content", "numa"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0", "1\n", {"GPU-0": 1}),
        ("00010000:3B:00.0", "10000:3b:00.0", "0\n", {"GPU-0": 0}),
        ("0000:3B:00.0", "0000:3b:00.0", "1\n", {"GPU-0": 1}),
        ("00000000:3B:00.0", "0000:3b:00.0", "-1\n", {}),
        ("00000000:3B:00.0", "0000:3b:00.0", "what\n", {}),
        ("00000000:3B:00.0", "0000:3c:00.0", "1\n", {}),
        ("", "0000:3b:00.0", "1\n", {}),
    ],
)
def test_the_numa_node_is_what_the_kernel_says(
    tmp_path: Path, bus: str, folder: str, content: str, numa: dict[str, int]
) -> None:
    place = tmp_path / "sys/bus/pci/devices" / folder
    place.mkdir(parents=True)
    (place / "numa_node").write_text(content)
    device = Device(0, "GPU-0", 0, bus, simulated.NAME, 1, "8.0")
    assert host.numa([device], tmp_path) == numa
