"""MPS on a real kubelet: the daemon killed, hanging, refusing. The node says so, pods are told, and it comes back.

The supervisor is deploy/mps-ds.yaml; the control program and the driver are stand-ins.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from gpushare.core.facts import names
from gpushare.mps import tidings
from tests.e2e.harness import command_line, mps
from tests.e2e.harness.cluster import ADMIN, NODE
from tests.e2e.harness.installation import held
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.mps import WithMps
from tests.e2e.harness.node_world import NodeWorld, open_world
from tests.support import pod_watch
from tests.support.api_client import Api
from tests.support.objects import Object

GPUS = [16276, 16276]
EXCLUSIVE = "3"
CLIENT: Object = {"containers": {"main": {"mps": 1}}}


@pytest.fixture(scope="module")
def installation(node: Node) -> Iterator[WithMps]:
    yield from held(mps.installed(node, GPUS))


@pytest.fixture
async def world(installation: WithMps, api: Api) -> AsyncIterator[NodeWorld]:
    installation.program.behave()
    await installation.until_says("")
    async with open_world(installation, api) as world:
        yield world


async def events(installation: WithMps, reason: str) -> list[tuple[str, str]]:
    listed = await installation.cluster.get(f"/api/v1/events?fieldSelector=reason={reason}")
    return [(event["involvedObject"]["name"], event["message"]) for event in listed["items"]]


async def test_a_killed_daemon_is_started_again_and_its_node_and_clients_are_told(
    world: NodeWorld, installation: WithMps
) -> None:
    assert installation.modes() == [EXCLUSIVE] * len(GPUS)
    await world.run({"name": "client", **CLIENT})
    before, why = installation.reported()["pid"], "the MPS daemon was ended by signal 9"
    await installation.kill_daemon()

    async def told() -> bool:
        said = await events(installation, tidings.LOST)  # of other tests, too
        to_pods, to_node = tidings.TO_PODS.format(why=why), tidings.TO_NODE.format(why=why, count=1)
        return {("client", to_pods), (NODE, to_node)} <= set(said)

    await installation.until("the client is told, and the node says so", told)

    async def back() -> bool:
        said = installation.reported()
        return bool(said["state"] == "up" and said["pid"] != before)

    await installation.until("another daemon", back)


@pytest.mark.parametrize(
    ("behaves", "why"),
    [
        ("hang", "the MPS daemon has not answered"),
        ("refuse", 'the MPS daemon refuses "get_'),
    ],
)
async def test_while_it_hangs_or_refuses_the_node_says_so_and_a_waiting_pod_comes_when_it_works_again(
    world: NodeWorld, installation: WithMps, behaves: str, why: str
) -> None:
    installation.program.behave(behaves)
    await installation.until_says(why)
    await world.make_pods({"name": "waits", **CLIENT})
    await world.watch.until_refused("waits")
    assert "node(s) whose MPS daemon does not work" in pod_watch.refusal(world.watch.pods["waits"])
    admin = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN])
    _, answer, _ = await command_line.piped(admin, "gpushare", "why", "waits", "-n", world.api.namespace)
    assert "MPS daemon does not work: the MPS daemon" in answer
    allocatable = (await world.node.object())["status"]["allocatable"]
    assert allocatable[names.MPS_GPU] == str(10 * len(GPUS))

    async def told() -> bool:
        """Some seconds later: a daemon that is back at once is no event."""
        said = [text for name, text in await events(installation, "MpsDown") if name == NODE]
        return any(f"no new pod gets an MPS share here: {why}" in text for text in said)

    await installation.until("the node is told", told)
    installation.program.behave()
    await world.until_running("waits")
    assert await installation.says() == ""


async def test_nothing_wrong_was_ever_said_to_the_control_program(installation: WithMps) -> None:
    assert installation.program.wrong == []
