"""Fixtures of the tests on a real control plane: `cluster` runs once for all, `node` once per file that wants a
kubelet, `world` is one test's part of it.

`make e2e` runs them; `make test` does not look into this folder. What is measured is told with `figures`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from gpushare.obs.errors import UserError
from tests.devcluster import support
from tests.e2e import binaries, containers_images, figures, kubelet, sight
from tests.e2e.cluster import ADMIN, URL, Cluster, say
from tests.e2e.kubelet import Node
from tests.e2e.world import World

FIGURES = pytest.StashKey[figures.Figures]()
CLUSTER = pytest.StashKey[Cluster]()
TAIL = 30  # lines of each log that a failed test shows


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = figures.Figures()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    try:
        binaries.check()
        binaries.ensure_all(say)
    except UserError as error:
        pytest.exit(error.render(), error.code)
    if any("node" in getattr(item, "fixturenames", ()) for item in request.session.items):
        containers_images.product()  # while there is a network to fetch packages from
    running = Cluster()
    request.config.stash[CLUSTER] = running
    with asyncio.Runner() as runner:
        try:
            runner.run(running.start())
            yield running
        finally:
            runner.run(running.stop())


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[Node]:
    """A real one, for the tests of one file."""
    running = Node(cluster)
    with asyncio.Runner() as runner:
        try:
            runner.run(running.start())
            yield running
        finally:
            runner.run(running.stop())


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[support.Api]:
    """A client with a namespace of its own."""
    async with support.connect(URL, cluster.tokens[ADMIN], str(cluster.ca)) as api:
        # Every namespace gets this from a controller; after that nothing happens in ours that we do not do.
        while (await api.get(f"{api.configmaps}/kube-root-ca.crt")).code == 404:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        yield api


@pytest.fixture
async def world(cluster: Cluster, api: support.Api) -> AsyncIterator[World]:
    shown = sight.Sight(api)
    watching = asyncio.create_task(shown.run())
    world = World(cluster, api, shown)
    try:
        yield world
        assert not watching.done(), watching.exception()
        await world.clean_up()
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


@pytest.fixture(scope="session", name="figures")
def told(request: pytest.FixtureRequest) -> figures.Figures:
    return request.config.stash[FIGURES]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows how each log ends; whole logs are kept until the next run."""
    report: pytest.TestReport = yield  # type: ignore[assignment]  # a wrapper's yield is the report
    running = item.config.stash.get(CLUSTER, None)
    if report.failed and running is not None:
        for log in (*sorted(running.logs.glob("*.log")), *running.work.glob(kubelet.LOGS)):
            lines = log.read_text(errors="replace").splitlines()[-TAIL:]
            report.sections.append((str(log), "\n".join(line[:300] for line in lines)))
    return report  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    measured, running = config.stash[FIGURES], config.stash.get(CLUSTER, None)
    if running is None:
        return
    measured.write(running.logs / "figures.txt")
    if measured.lines:
        terminalreporter.section("measured")
        terminalreporter.write("".join(f"{line}\n" for line in measured.lines))
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write(f"logs: {running.logs}\n")
