"""The checks of a machine, each with what it remembers between two looks: asking the driver is expensive.

`verdict` is called every few seconds while the checks before it have passed; `blocked` once they have not.
"""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects
from gpushare.core.facts.mps import status
from gpushare.validate.machine import dev_char, host
from gpushare.validate.machine.host import Places
from gpushare.validate.rules import driver, mps, plugin, toolkit
from gpushare.validate.rules.driver import Answer, Candidate
from gpushare.validate.rules.plugin import Answered
from gpushare.validate.rules.verdict import Verdict

ASK_SECONDS: Final = 60.0  # between two questions to a driver that answers
ASK_SOON_SECONDS: Final = 15.0  # to one that does not

Clock = Callable[[], float]


class Check(Protocol):
    async def verdict(self) -> Verdict: ...

    def blocked(self) -> None: ...


class Driver:
    """`asked`: which library answered; None: none did. `pci`: GPUs on the bus."""

    def __init__(
        self,
        places: Places,
        ask: Callable[[Candidate], Awaitable[Answer]],
        container_ready: Callable[[], bool],
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self.asked: Candidate | None = None
        self.pci: int | None = None
        self._places, self._ask, self._container_ready, self._clock = places, ask, container_ready, clock
        self._seen: tuple[object, ...] = ()
        self._due = 0.0
        self._said = Verdict("waiting")

    async def verdict(self) -> Verdict:
        libraries = host.libraries(self._places, self._container_ready())
        candidates = driver.candidates(libraries)
        nodes = host.device_nodes(self._places), host.device_nodes(self._places, self._places.driver_root)
        signatures = [host.signature(self._places, one.library) for one in candidates]
        seen = (candidates, signatures, *nodes)
        if seen != self._seen or self._clock() >= self._due:
            self._said = await self._asked(candidates) if candidates else driver.nothing_to_ask(libraries)
            self._seen = seen
            passed = self._said.state == "passed"
            self._due = self._clock() + (ASK_SECONDS if passed else ASK_SOON_SECONDS)
            self.asked = self.asked if passed else None
        return self._said

    def blocked(self) -> None:
        """No check is before it."""

    def ready_file(self) -> str:
        of_host = self.asked is None or self.asked.of_host
        return driver.ready_file(
            of_host, self._places.real_root, self._places.driver_root,
            own_nodes=bool(host.dev_root(self._places, of_host)),
        )  # fmt: skip

    async def _asked(self, candidates: list[Candidate]) -> Verdict:
        self.pci = host.pci_gpus(self._places)
        said = Verdict("failed")
        for candidate in candidates:
            answer = await self._ask(candidate)
            # The driver may make device nodes when it is asked.
            below = host.dev_root(self._places, candidate.of_host)
            nodes = host.device_nodes(self._places, below)
            warning = "" if answer.what else dev_char.make(self._places.inside("/dev/char"), nodes)
            said = driver.judged(candidate, answer, frozenset(nodes), self.pci, warning)
            if said.state == "passed":
                self.asked = candidate
                break
        return said


class Toolkit:
    def __init__(self, places: Places) -> None:
        self._places, self._specs = places, host.Specs(places)

    async def verdict(self) -> Verdict:
        programs, specs = host.programs(self._places), self._specs.found()
        absent = {node for spec in specs for node in spec.nodes if not self._places.there(node)}
        return toolkit.judged(programs, specs, frozenset(absent))

    def blocked(self) -> None:
        """It remembers nothing."""


class Plugin:
    """`asked`: what /readyz of the node part says. `node`: this node's object and, if it is not known, why."""

    def __init__(
        self, asked: Callable[[], Awaitable[Answered]], node: Callable[[], tuple[objects.Node | None, str]]
    ) -> None:
        self._asked, self._node = asked, node

    async def verdict(self) -> Verdict:
        return plugin.judged(await self._asked(), *self._node())

    def blocked(self) -> None:
        """It remembers nothing."""


class Mps:
    """`folder`: where `gpushare mps` reports."""

    def __init__(
        self,
        node: Callable[[], tuple[objects.Node | None, str]],
        now: Clock = time.time,
        folder: Path = Path(names.MPS_STATUS_FOLDER),
    ) -> None:
        self._node, self._now, self._file = node, now, folder / status.FILE

    async def verdict(self) -> Verdict:
        node, _ = self._node()
        facts = node_gpus.read(node, frozenset()) if node is not None else None
        return mps.judged(facts, self._content(), self._now())

    def blocked(self) -> None:
        """It remembers nothing."""

    def _content(self) -> bytes | None:
        try:
            with self._file.open("rb") as file:
                return file.read(status.LARGEST)
        except OSError:
            return None
