"""deploy/mps-ds.yaml beside the node part on the real node, with a stand-in for NVIDIA's control program.

The supervisor, its pod, its folders and its rights are the shipped ones. Only the driver and the control program are
stand-ins: there is no GPU and no MPS server.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from gpushare.core.facts import names
from gpushare.core.facts.mps import status
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import NODE, run
from tests.e2e.harness.installation import GUARD, OWN_NODE, PIN, Installation, Object, running
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.selling import Selling
from tests.support.mps.stand_in import SOURCE, StandIn

MPS = "mps-ds.yaml"
LABEL = "gpushare.io/mps"
SWITCHED_ON = ("{name: mps,",)
FLAGS = ("--mps-slots=10", f"--mps-status={names.MPS_STATUS_FOLDER}")
FOLDER = "mps"  # of the stand-in, below that of the stand-in for the driver


def install_program(folder: Path) -> None:
    """`folder`: that of the stand-in for the driver."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    program = folder / SOURCE.name
    program.write_bytes(SOURCE.read_bytes())
    program.chmod(0o755)


def give_program(container: Object) -> None:
    """To a container that has the stand-in for the driver already."""
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "mock")
    del mount["readOnly"]  # compute modes are kept there
    path = f"{shipped.MOCK}:/usr/local/bin:/usr/bin:/bin"
    container["env"] += [{"name": "PATH", "value": path}, {"name": "MOCK_MPS", "value": f"{shipped.MOCK}/{FOLDER}"}]


class Daemon(Installation):
    """What both kinds of node part have beside them."""

    @property
    def _folder(self) -> Path:
        return self._mock.path.parent

    @property
    def program(self) -> StandIn:
        return StandIn(self._folder / FOLDER)

    async def start_daemon(self) -> None:
        install_program(self._folder)
        self.program.behave()
        await self.cluster.kubectl("label", "--overwrite", "node", NODE, f"{LABEL}=true")
        await self._apply([self._for_this_machine(document) for document in shipped.documents(MPS)])

    async def stop(self) -> None:
        """An orderly end puts the compute modes back."""
        await super().stop()
        await self.cluster.kubectl("label", "node", NODE, f"{LABEL}-")
        assert set(self.modes()) == {"0"}, self.modes()

    def _for_this_machine(self, document: Object) -> Object:
        changed = shipped.for_test_machine(document, self._folder)
        if changed["kind"] == "DaemonSet":
            (container,) = changed["spec"]["template"]["spec"]["containers"]
            give_program(container)
        return changed

    def reported(self) -> Object:
        """By the supervisor."""
        said: Object = json.loads((self.node.machine.inside(names.MPS_STATUS_FOLDER) / status.FILE).read_bytes())
        return said

    def modes(self) -> list[str]:
        """Compute modes that were set, one for each GPU."""
        return sorted(path.read_text().strip() for path in self._folder.glob(f"{shipped.STATE}.mode.*"))

    async def kill_daemon(self) -> None:
        """By force."""
        await run(["nsenter", f"--target={self.node.machine.first}", "--mount", "--pid", "--",
                   "kill", "-9", str(self.reported()["pid"])])  # fmt: skip


class WithMps(Daemon):
    """MPS shares: deploy/node-ds.yaml."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, ("node-ds.yaml",), (PIN, GUARD, OWN_NODE), "MiB", FLAGS, SWITCHED_ON)

    async def start(self, gpus: Sequence[int]) -> None:
        await super().start(gpus)
        await self.start_daemon()
        await self.until_says("")

    async def says(self) -> str:
        """Why the node says that its daemon does not work; empty: it works."""
        return str((await self.published()).get("mps", ""))

    async def until_says(self, why: str) -> None:
        async def said() -> bool:
            return why == await self.says() if not why else why in await self.says()

        await self.until(f'the node says "{why}"', said)


class SellingMps(Selling, Daemon):
    """MPS replicas: deploy/nvidia-ds.yaml."""

    def __init__(self, node: Node, configs: dict[str, str]) -> None:
        super().__init__(node, configs)
        self._flags, self.switched_on = FLAGS[1:], SWITCHED_ON

    async def start(self, gpus: Sequence[int]) -> None:
        await super().start(gpus)
        await self.start_daemon()


@contextlib.asynccontextmanager
async def installed(node: Node, gpus: Sequence[int]) -> AsyncIterator[WithMps]:
    async with running(WithMps(node), gpus) as installation:
        yield installation


@contextlib.asynccontextmanager
async def selling(node: Node, gpus: Sequence[int], configs: dict[str, str]) -> AsyncIterator[SellingMps]:
    async with running(SellingMps(node, configs), gpus, extenders=[]) as installation:
        yield installation
