"""`gpushare install-scheduler` on a real control plane: kube-scheduler is a static pod that kubelet runs from kubeadm's
manifest. It is edited, starts again, asks the extender and places a pod that runs with its share; and the way back."""

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
import yaml

from gpushare.core.facts import names
from tests.e2e.harness import control_plane, versions
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.installation import Installation, held
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.node_world import NodeWorld, open_world
from tests.e2e.harness.world import gpus_of
from tests.support.api_client import Api

GPUS = [16384, 16384]  # MiB
OURS = "--config=/etc/kubernetes/gpushare/scheduler-"


@contextlib.asynccontextmanager
async def _installed(node: Node) -> AsyncIterator[tuple[ControlPlane, Installation]]:
    installation = Installation(node, ("node-ds.yaml",), ("admission.yaml", "node-guard.yaml"), "MiB")
    async with control_plane.running(node) as plane:
        try:
            await installation.start(GPUS)
            yield plane, installation
        finally:
            await installation.stop()


@pytest.fixture(scope="module")
def both(node: Node) -> Iterator[tuple[ControlPlane, Installation]]:
    yield from held(_installed(node))


@pytest.fixture
async def plane(both: tuple[ControlPlane, Installation]) -> AsyncIterator[ControlPlane]:
    """As kubeadm has made it; and so it is afterwards."""
    plane, _ = both
    yield plane
    if not plane.is_as_before:
        done = await plane.run("--revert")
        assert done.returncode == 0, done.stderr
    assert plane.is_as_before


@pytest.fixture
async def world(both: tuple[ControlPlane, Installation], api: Api) -> AsyncIterator[NodeWorld]:
    async with open_world(both[1], api) as world:
        yield world


async def test_the_scheduler_is_edited_asks_the_extender_and_places_a_pod_with_its_share(
    plane: ControlPlane, world: NodeWorld
) -> None:
    rehearsed = await plane.run("--dry-run")
    assert (rehearsed.returncode, plane.is_as_before) == (0, True), rehearsed.stderr
    done = await plane.run()
    assert done.returncode == 0, done.stderr
    assert done.stdout == rehearsed.stdout
    assert "healthy, and has asked the extender" in done.stderr
    assert any(word.startswith(OURS) for word in await plane.flags())
    await world.run({"name": "web", "containers": {"main": 3000}})
    ((gpu, units),) = gpus_of(world.watch.pods["web"]).items()
    told = await world.environment("web")
    assert (units, told[names.VISIBLE_DEVICES]) == (3000, (await world.installation.uuids())[gpu])

    again = await plane.run()
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("nothing to do")

    back = await plane.run("--revert")
    assert back.returncode == 0, back.stderr
    assert plane.is_as_before
    assert not any(word.startswith("--config") for word in await plane.flags())
    assert "runs as before" in back.stderr


async def test_a_broken_extender_address_rolls_back_by_itself(plane: ControlPlane) -> None:
    """The extender is there, but not under that path: only kube-scheduler finds out."""
    done = await plane.run("--extender-url=http://127.0.0.1:12345/elsewhere", "--timeout=60")
    assert done.returncode == 1, done.stderr
    assert plane.is_as_before
    assert "404" in done.stderr, done.stderr
    assert await plane.is_ready()
    assert not any(word.startswith("--config") for word in await plane.flags())


async def test_a_scheduler_that_does_not_start_is_put_back_and_its_last_words_are_told(plane: ControlPlane) -> None:
    """With this flag it does not start once it has a configuration with another leader election."""
    broken = yaml.safe_load(plane.kubeadm)
    (container,) = broken["spec"]["containers"]
    folder = plane.node.machine.inside("/etc/kubernetes")
    (folder / "mine.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}\n"
    )
    container["command"].append("--config=/etc/kubernetes/mine.yaml")
    container["volumeMounts"].append({"name": "mine", "mountPath": "/etc/kubernetes/mine.yaml", "readOnly": True})
    broken["spec"]["volumes"].append(
        {"name": "mine", "hostPath": {"path": "/etc/kubernetes/mine.yaml", "type": "File"}}
    )
    before = yaml.safe_dump(broken).encode()
    plane.manifest.write_bytes(before)
    try:
        await plane.until_flag("--config=/etc/kubernetes/mine.yaml")
        # Now the file says what no kube-scheduler reads, and the running one has not noticed.
        (folder / "mine.yaml").write_text((folder / "mine.yaml").read_text() + "parallelism: -1\n")
        done = await plane.run("--timeout=40")
        assert done.returncode == 1, done.stderr
        assert "parallelism" in done.stderr
        assert plane.manifest.read_bytes() == before
        assert not plane.folder.exists()
    finally:
        plane.manifest.write_bytes(plane.kubeadm)
        await plane.until_flag("")
        (folder / "mine.yaml").unlink()


async def test_an_extender_that_does_not_answer_is_said_before_anything_is_changed(plane: ControlPlane) -> None:
    before = (await plane.pod())["metadata"]["uid"]
    done = await plane.run("--extender-url=http://127.0.0.1:12399/gpushare-scheduler")
    assert done.returncode == 3
    assert "the extender is not ready" in done.stderr
    assert plane.is_as_before
    assert (await plane.pod())["metadata"]["uid"] == before


async def test_a_run_that_was_killed_after_the_exchange_is_finished_by_the_next_one(plane: ControlPlane) -> None:
    await plane.kill_when(OURS)
    done = await plane.run()
    assert done.returncode == 0, done.stderr
    assert "healthy, and has asked the extender" in done.stderr


async def test_other_profiles_and_extenders_stay(plane: ControlPlane) -> None:
    folder = plane.node.machine.inside("/etc/kubernetes")
    other = {"urlPrefix": "http://127.0.0.1:9/other", "filterVerb": "filter", "managedResources": [{"name": "a.com/b"}]}
    mine = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "batch"}],
        "extenders": [other],
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(mine))
    text = plane.kubeadm.decode()
    text = text.replace("- kube-scheduler\n", "- kube-scheduler\n    - --config=/etc/kubernetes/mine.yaml # mine\n")
    text = text.replace("volumeMounts:\n", "volumeMounts:\n    - {mountPath: /etc/kubernetes/mine.yaml, name: mine}\n")
    text = text.replace(
        "volumes:\n", "volumes:\n  - {hostPath: {path: /etc/kubernetes/mine.yaml, type: File}, name: mine}\n"
    )
    plane.manifest.write_text(text)
    try:
        await plane.until_flag("--config=/etc/kubernetes/mine.yaml")
        done = await plane.run()
        assert done.returncode == 0, done.stderr
        (name,) = (name for name in plane.files() if name.startswith("scheduler-"))
        merged = yaml.safe_load((plane.folder / name).read_text())
        assert merged["profiles"] == mine["profiles"]
        assert merged["extenders"][0] == other
        back = await plane.run("--revert")
        assert back.returncode == 0, back.stderr
        assert plane.manifest.read_text() == text
    finally:
        plane.manifest.write_bytes(plane.kubeadm)
        await plane.until_flag("")
        (folder / "mine.yaml").unlink()


@pytest.mark.parametrize("kind", versions.OLDER[versions.OLDEST], ids=str)
async def test_a_scheduler_of_1_22_gets_a_policy_and_places_a_pod_by_it(
    plane: ControlPlane, world: NodeWorld, kind: versions.Scheduler
) -> None:
    await plane.become_old(kind)
    try:
        done = await plane.run()
        assert done.returncode == 0, done.stderr
        assert "healthy, and has asked the extender" in done.stderr
        assert any(word.startswith("--policy-config-file=/etc/kubernetes/gpushare/") for word in await plane.flags())
        await world.run({"name": "old", "containers": {"main": 3000}})
        back = await plane.run("--revert")
        assert back.returncode == 0, back.stderr
        assert plane.is_as_before
    finally:
        await plane.become_new()


async def test_the_same_as_a_job_for_people_without_a_shell_there(plane: ControlPlane) -> None:
    succeeded, printed = await plane.job()
    assert succeeded, printed
    assert any(word.startswith(OURS) for word in await plane.flags())
    succeeded, printed = await plane.job("--revert")
    assert succeeded, printed
    assert plane.is_as_before
