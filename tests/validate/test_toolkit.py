"""What brings the driver into containers: NVIDIA's runtime, or a CDI spec whose device nodes are there."""

from gpushare.validate.checks import Toolkit
from gpushare.validate.rules import toolkit
from gpushare.validate.rules.verdict import Verdict
from tests.validate.machine import Machine


async def said(machine: Machine) -> Verdict:
    return await Toolkit(machine.places()).verdict()


async def test_nvidias_runtime_is_enough(machine: Machine) -> None:
    machine.program()
    assert await said(machine) == ("passed", "/usr/bin/nvidia-container-runtime", "")


async def test_a_toolkit_container_is_found_where_it_installs(machine: Machine) -> None:
    machine.program("/opt/nvidia/toolkit/nvidia-ctk")
    assert (await said(machine)).state == "failed"
    check = Toolkit(machine.places(toolkit="/opt/nvidia"))
    assert (await check.verdict()).why == "/opt/nvidia/toolkit/nvidia-ctk"


async def test_with_nothing_there_it_says_what_to_install(machine: Machine) -> None:
    found = await said(machine)
    assert found.state == "failed"
    assert "nvidia-container-runtime" in found.why
    assert found.way == toolkit.INSTALL


async def test_a_cdi_spec_is_enough(machine: Machine) -> None:
    machine.devices("nvidia0", "nvidia1")
    machine.spec("/dev/nvidia0", "/dev/nvidia1")
    assert await said(machine) == ("passed", "CDI spec /etc/cdi/nvidia.json, 2 devices", "")


async def test_a_cdi_spec_may_be_yaml_and_in_a_linked_folder(machine: Machine) -> None:
    machine.devices("nvidia0")
    devices = "devices: [{name: a, containerEdits: {deviceNodes: [{path: /dev/x, hostPath: /dev/nvidia0}]}}]"
    machine.file("/run/cdi/nvidia.yaml", f"kind: nvidia.com/gpu\n{devices}\n")
    (machine.root / "var").mkdir()
    (machine.root / "var/run").symlink_to("/run")
    assert (await said(machine)).why == "CDI spec /var/run/cdi/nvidia.yaml, 1 device"


async def test_a_stale_cdi_spec_fails_with_the_reason(machine: Machine) -> None:
    machine.devices("nvidia0")
    machine.spec("/dev/nvidia0", "/dev/nvidia1")
    found = await said(machine)
    assert (found.state, found.why) == (
        "failed",
        "CDI spec /etc/cdi/nvidia.json names /dev/nvidia1, which is not there",
    )
    assert found.way.startswith("on the node: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.json")


async def test_beside_nvidias_runtime_a_stale_spec_is_a_warning(machine: Machine) -> None:
    machine.program()
    machine.spec("/dev/nvidia1")
    found = await said(machine)
    assert found.state == "passed"
    assert "names /dev/nvidia1, which is not there" in found.why


async def test_specs_of_other_devices_say_nothing(machine: Machine) -> None:
    machine.spec("/dev/fpga", kind="example.com/fpga")
    machine.file("/etc/cdi/broken.json", "{")
    assert (await said(machine)).why.startswith("neither NVIDIA's container runtime")


async def test_a_changed_spec_is_read_again(machine: Machine) -> None:
    machine.devices("nvidia0")
    check = Toolkit(machine.places())
    machine.spec("/dev/nvidia0")
    assert (await check.verdict()).state == "passed"
    machine.spec("/dev/nvidia0", "/dev/nvidia7")
    assert (await check.verdict()).state == "failed"


def test_a_spec_of_any_shape_is_read_without_an_error() -> None:
    wrong: list[object] = [
        None,
        [],
        {"kind": "nvidia.com/gpu", "devices": 3},
        {"kind": "nvidia.com/gpu", "devices": ["x"]},
    ]
    for data in wrong:
        assert (found := toolkit.read("p", data)) is None or found.devices == 0
    edits = {"kind": "nvidia.com/gpu", "devices": [], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]}}
    assert (found := toolkit.read("p", edits)) is not None
    assert found.nodes == ("/dev/nvidiactl",)
