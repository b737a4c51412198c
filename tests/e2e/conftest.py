"""Fixtures of the tests on a real control plane: `cluster` runs once for all, `node` once per file that wants a
kubelet, `world` is one test's part of it.

`make e2e` runs them; `make test` does not look into this folder. What is measured is told with `figures`. There may be
several lanes, each a process of pytest-xdist with a cluster of its own: they share nothing but the programs.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gpushare.obs.errors import UserError
from tests.e2e.harness import binaries, figures, images, kubelet, processes, versions
from tests.e2e.harness.cluster import Cluster, say
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.world import World, connected, opened
from tests.support import api_client

FIGURES = pytest.StashKey[figures.Figures]()
CLUSTER = pytest.StashKey[Cluster]()
LANE = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")  # 0, 1; empty where there is one cluster only
TAIL = 30  # lines of each log that a failed test shows


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedulers", choices=sorted(versions.OLDER), default=versions.OLDEST, help="whom test_versions.py is about"
    )
    parser.addoption("--rounds", type=int, default=5, metavar="N", help="of test_speed.py; make e2e as a whole: 1")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = figures.Figures()
    if LANE:
        processes.die_with_parent()  # else pytest-xdist lets it go on for a while when make was killed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a kubelet take minutes each. They come first, so that lanes end at about the same time."""
    long = {item.path for item in items if _has_kubelet(item)}
    items.sort(key=lambda item: item.path not in long)


def _has_kubelet(item: pytest.Item) -> bool:
    return "node" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    kinds = (getattr(item, "callspec", None) for item in request.session.items)
    older = sorted({kind.params["kind"].version for kind in kinds if kind and "kind" in kind.params})
    try:
        binaries.check(older)
        binaries.ensure_all(say, older)
    except UserError as error:
        pytest.exit(error.render(), error.code)
    if any(map(_has_kubelet, request.session.items)):
        images.product()  # while there is a network to fetch packages from
    running = Cluster(lane=LANE)
    request.config.stash[CLUSTER] = running
    with asyncio.Runner() as runner:
        try:
            runner.run(running.start())
            yield running
        finally:
            runner.run(running.stop())


@pytest.fixture(scope="module", autouse=True)
def own_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """A file with this mark begins with an empty cluster, and leaves one."""
    if request.node.get_closest_marker("own_cluster") is None:
        yield
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    asyncio.run(cluster.renew())
    yield
    asyncio.run(cluster.renew())


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
async def api(cluster: Cluster) -> AsyncIterator[api_client.Api]:
    """A client with a namespace of its own."""
    async with connected(cluster) as api:
        yield api


@pytest.fixture
async def world(cluster: Cluster, api: api_client.Api) -> AsyncIterator[World]:
    async with opened(cluster, api) as world:
        yield world


@pytest.fixture(scope="session", name="figures")
def told(request: pytest.FixtureRequest) -> figures.Figures:
    return request.config.stash[FIGURES]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows how each log ends; whole logs are kept until the next run."""
    report: pytest.TestReport = yield  # type: ignore[assignment]  # a wrapper's yield is the report
    running = item.config.stash.get(CLUSTER, None)
    if report.failed and running is not None:
        ours = (running.work.glob(kubelet.LOGS.format(namespace=name)) for name in kubelet.OUR_NAMESPACES)
        for log in (*sorted(running.logs.glob("*.log")), *itertools.chain.from_iterable(ours)):
            lines = log.read_text(errors="replace").splitlines()[-TAIL:]
            report.sections.append((str(log), "\n".join(line[:300] for line in lines)))
    return report  # type: ignore[return-value]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if LANE:
        session.config.workeroutput["figures"] = session.config.stash[FIGURES].lines  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A lane has ended; one that died has told nothing."""
    node.config.stash[FIGURES].lines += getattr(node, "workeroutput", {}).get("figures", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    measured = config.stash[FIGURES].lines
    if measured:
        terminalreporter.section("measured")
        terminalreporter.write("".join(f"{line}\n" for line in measured))
