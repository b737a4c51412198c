"""The driver of a machine: its library is found and asked in a process of its own, on the machine or in a container."""

from pathlib import Path

from gpushare.validate import checks
from gpushare.validate.checks import Driver
from gpushare.validate.machine import asking, dev_char, host
from gpushare.validate.machine.asking import Asking
from gpushare.validate.machine.host import Places
from gpushare.validate.rules import driver
from gpushare.validate.rules.driver import Answer, Candidate
from tests.support.nvml import state
from tests.validate.machine import Machine

NODES = ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
T4 = "driver 550.54.14 of this machine, 2 GPUs"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Asked:
    """Counts the questions to the driver."""

    def __init__(self, places: Places, *, limit: float = 30.0) -> None:
        self.asking, self.times = Asking(places, limit=limit), 0

    async def __call__(self, candidate: Candidate) -> Answer:
        self.times += 1
        return await self.asking.ask(candidate)


def checked(machine: Machine, *, ready: bool = False, limit: float = 30.0) -> tuple[Driver, Asked, Clock]:
    asked, clock = Asked(machine.places(), limit=limit), Clock()
    return Driver(machine.places(), asked, lambda: ready, clock=clock), asked, clock


async def test_a_driver_that_answers_passes_and_is_named(machine: Machine) -> None:
    machine.install()
    machine.devices(*NODES)
    check, _, _ = checked(machine)
    said = await check.verdict()
    assert (said.state, said.why, said.way) == ("passed", T4, "")
    assert check.ready_file() == (
        "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\n"
        "NVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
    )


async def test_without_a_library_the_driver_is_missing_and_nobody_is_asked(machine: Machine) -> None:
    check, asked, _ = checked(machine)
    said = await check.verdict()
    assert (said.state, said.why, asked.times) == ("failed", driver.NO_LIBRARY, 0)
    assert "driver.enabled: true" in said.way


async def test_a_library_that_goes_is_noticed_at_once_and_one_that_comes_too(machine: Machine) -> None:
    machine.install()
    machine.devices(*NODES)
    check, asked, _ = checked(machine)
    assert (await check.verdict()).state == "passed"
    assert (await check.verdict()).state == "passed"
    assert asked.times == 1
    machine.library.unlink()
    assert (await check.verdict()).why == driver.NO_LIBRARY
    machine.install()
    assert (await check.verdict()).state == "passed"
    assert asked.times == 2


async def test_a_driver_that_answers_is_asked_once_a_minute(machine: Machine) -> None:
    machine.install()
    check, asked, clock = checked(machine)
    await check.verdict()
    clock.now += checks.ASK_SECONDS - 1
    await check.verdict()
    assert asked.times == 1
    clock.now += 1
    await check.verdict()
    assert asked.times == 2


async def test_device_nodes_that_are_missing_are_a_warning(machine: Machine) -> None:
    machine.install()
    machine.devices("nvidiactl", "nvidia0")
    said = await checked(machine)[0].verdict()
    assert said.state == "passed"
    assert said.why == f"{T4}; missing: /dev/nvidia-uvm, /dev/nvidia1 (nvidia-modprobe -u -c=0 makes them)"


async def test_gpus_on_the_bus_that_do_not_answer_are_a_warning(machine: Machine) -> None:
    machine.install()
    machine.devices(*NODES)
    machine.pci(("0x10de", "0x030200"), ("0x10de", "0x030000"), ("0x10de", "0x030200"), ("0x10de", "0x040300"),
                ("0x8086", "0x030000"))  # fmt: skip
    check, _, _ = checked(machine)
    said = await check.verdict()
    assert said.why == f"{T4}; of 3 GPUs on the PCI bus only 2 answer (dmesg shows why)"
    assert check.pci == 3


async def test_a_driver_that_is_not_loaded_fails_with_the_way_out(machine: Machine) -> None:
    machine.install()
    machine.gpus.show(rules=("fail=nvmlInitWithFlags 9",))
    said = await checked(machine)[0].verdict()
    assert said.state == "failed"
    assert said.why.startswith("the NVIDIA driver is not loaded: nvmlInitWithFlags")
    assert "nvidia-smi" in said.way


async def test_a_driver_that_hangs_is_given_up(machine: Machine) -> None:
    machine.install()
    machine.gpus.show(state.card(0), rules=("hang=nvmlDeviceGetCount_v2",))
    said = await checked(machine, limit=1.0)[0].verdict()
    assert (said.state, said.why) == (
        "failed",
        "the NVIDIA driver does not answer: NVML has not come back for 1 s; that call is abandoned",
    )


async def test_a_library_that_is_none_is_said(machine: Machine) -> None:
    machine.install()
    machine.library.resolve().write_bytes(b"not a library")
    said = await checked(machine)[0].verdict()
    assert said.state == "failed"
    assert said.why.startswith("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 cannot be loaded")


async def test_a_gpu_with_a_fault_is_named_and_the_driver_passes(machine: Machine) -> None:
    machine.install()
    machine.devices(*NODES)
    machine.gpus.show(state.card(0), state.card(1).replace("action=0", "action=2"))
    said = await checked(machine)[0].verdict()
    assert said.state == "passed"
    assert f"GPU 1 {state.uuid(1)}: the driver asks for a reboot of the node" in said.why


async def test_a_driver_container_counts_when_it_says_that_it_is_ready(machine: Machine) -> None:
    machine.install("run/nvidia/driver")
    machine.devices(*NODES)
    said = await checked(machine)[0].verdict()
    assert (said.state, said.why) == ("failed", driver.NOT_READY)
    check, _, _ = checked(machine, ready=True)
    said = await check.verdict()
    assert (said.state, said.why) == ("passed", "driver 550.54.14 of a driver container, 2 GPUs")
    assert check.ready_file() == (
        "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\n"
        "NVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
    )


def test_a_driver_container_with_device_nodes_of_its_own_says_where_they_are() -> None:
    assert driver.ready_file(False, "/", "/run/nvidia/driver", own_nodes=True).splitlines()[-2:] == [
        "NVIDIA_DEV_ROOT=/run/nvidia/driver",
        "DEV_ROOT_CTR_PATH=/driver-root",
    ]


def test_an_absolute_link_begins_at_the_machines_root(machine: Machine) -> None:
    machine.file("/opt/driver/lib.so", "x")
    (machine.root / "usr/lib64").mkdir(parents=True)
    (machine.root / "usr/lib64/libnvidia-ml.so.1").symlink_to("/opt/driver/lib.so")
    assert host.libraries(machine.places(), False).host == "/usr/lib64/libnvidia-ml.so.1"
    assert machine.places().inside("/usr/lib64/libnvidia-ml.so.1") == machine.root / "opt/driver/lib.so"
    assert machine.places().inside("/../../etc") == machine.root / "etc"


def test_links_in_a_circle_lead_nowhere(machine: Machine) -> None:
    (machine.root / "a").symlink_to("b")
    (machine.root / "b").symlink_to("a")
    assert not machine.places().there("/a")


def test_links_in_dev_char_are_made_once_and_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "char"
    nodes = {"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-caps": (0, 0)}
    assert dev_char.make(folder, nodes) == ""
    (folder / "195:0").unlink()
    (folder / "195:0").symlink_to("../nvidia7")
    assert dev_char.make(folder, nodes) == ""
    assert {link.name: str(link.readlink()) for link in folder.iterdir()} == {
        "195:0": "../nvidia0",
        "195:255": "../nvidiactl",
    }


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "char").touch()
    said = dev_char.make(tmp_path / "char", {"nvidia0": (195, 0)})
    assert "systemctl daemon-reload" in said


async def test_a_process_that_dies_says_how(machine: Machine, tmp_path: Path) -> None:
    assert asking._read(b"", b"Traceback\nboom", 1).why == "boom"
    assert asking._read(b"", b"", -11).why == "SIGSEGV"
