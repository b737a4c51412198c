"""What the node says while its MPS daemon does not work, and how many slots it sells."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.core.facts.mps import status
from gpushare.core.facts.mps.status import Status
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.simulated import Simulated
from gpushare.node import mps_daemon
from tests.node import world
from tests.node.world import CONFIG, running, said, warnings
from tests.support import embedded_objects
from tests.support.wait import eventually, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_daemon, "LOOK_SECONDS", 0.01)


def report(folder: Path, state: Any = "up", why: str = "", age: float = 0.0) -> None:
    now = time.time() - age
    (folder / status.FILE).write_bytes(status.write(Status(1, state, why, now, 1, now)))


def down(server: ApiServer) -> str | None:
    """What the annotation says of the daemon; None while there is no annotation."""
    found = said(server)
    return None if found is None else found.get("mps", "")


def slots(server: ApiServer) -> str | None:
    capacity: dict[str, str] = world.shown(server)["status"]["capacity"]
    return capacity.get(names.MPS_GPU)


async def test_the_node_says_why_its_daemon_does_not_work_and_keeps_its_capacity(
    server: ApiServer, gpus: Simulated, tmp_path: Path
) -> None:
    config = CONFIG._replace(slots=10, mps_status=str(tmp_path))
    async with running(server.url, gpus, config):
        await until(server, lambda: down(server) == status.NOT_THERE and slots(server) == "20")
        report(tmp_path)
        await until(server, lambda: down(server) == "")
        report(tmp_path, "down", "it hangs")
        await until(server, lambda: down(server) == "it hangs")
        assert slots(server) == "20"
        await eventually(
            lambda: ("MpsDown", "gpu-a", "no new pod gets an MPS share here: it hangs") in warnings(server)
        )
        report(tmp_path)
        await until(server, lambda: down(server) == "")
        works = ("Normal", "MpsUp", "gpu-a", "the MPS daemon works: new pods get MPS shares here")
        await eventually(lambda: works in embedded_objects.events(server))
        report(tmp_path, age=60.0)
        await until(server, lambda: down(server) == status.SILENT)
        (tmp_path / status.FILE).write_text("{")
        await until(server, lambda: down(server) == status.NOT_READ)


async def test_without_a_status_folder_nobody_looks(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus, CONFIG._replace(slots=10)):
        await until(server, lambda: slots(server) == "20")
        assert down(server) == ""


async def test_a_node_sells_as_many_slots_as_its_oldest_gpu_serves_clients_and_says_so(
    server: ApiServer,
) -> None:
    new, old = world.devices(16000, 16000)
    gpus = Simulated([new, msgspec.structs.replace(old, capability="7.0")])
    async with running(server.url, gpus, CONFIG._replace(slots=20)):
        await until(server, lambda: slots(server) == "32")
        assert (said(server) or {})["slots"] == 16
        text = "16 MPS slots on each GPU instead of 20: a GPU here has compute capability 7.0"
        await eventually(lambda: ("FewerMpsSlots", "gpu-a", text) in warnings(server))


async def test_a_gpu_that_is_swapped_for_an_older_one_lowers_the_slots(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus, CONFIG._replace(slots=20)):
        await until(server, lambda: slots(server) == "40")
        gpus.put(msgspec.structs.replace(world.devices(*world.SIZES)[1], capability="6.1"))
        await until(server, lambda: slots(server) == "32")
