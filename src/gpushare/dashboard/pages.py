"""The pages of the API: what is kept and read here becomes an answer for one reader.

What the reader may see is asked between two looks at the cluster, because that takes time: names of pods that came
meanwhile are not among those that were asked about, and are left out.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gpushare.core.steps import Run
from gpushare.dashboard.allowed import is_allowed
from gpushare.dashboard.answers import gpu, health, history, node, search, waiting, whatif, why
from gpushare.dashboard.copies import Copies
from gpushare.dashboard.live.cluster import Live
from gpushare.dashboard.live.history import RANGES, History
from gpushare.dashboard.live.past import Past
from gpushare.dashboard.reading import Reading
from gpushare.dashboard.server.problems import Problem
from gpushare.dashboard.server.routes import Asked, Page, See
from gpushare.dashboard.server.trials import Trials
from gpushare.obs.errors import UserError

DEFAULT_RANGE: Final = "1h"
NOT_JSON: Final = "the question cannot be read"
LONGEST: Final = 253  # characters of a name


class Pages:
    def __init__(
        self,
        live: Live,
        history: History,
        past: Past,
        reading: Reading,
        trials: Trials,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._live, self._history, self._past = live, history, past
        self._reading, self._trials, self._now = reading, trials, now
        self._copies = Copies(live)

    def table(self) -> Mapping[str, Page]:
        return {
            "node": Page(1, self._node),
            "gpu": Page(2, self._gpu),
            "waiting": Page(0, self._waiting),
            "why": Page(2, self._why),
            "history": Page(0, self._past_of_cluster),
            "health": Page(0, self._health),
            "search": Page(0, self._search),
            "whatif": Page(0, self._what_if, "POST"),
        }

    async def _node(self, asked: Asked, see: See) -> object | None:
        (name,) = asked.parts
        allowed = await see(node.namespaces(self._live.snapshot(), name))
        return node.answer(self._live.snapshot(), name, self._live.pod_number, allowed, self._over_for)

    async def _gpu(self, asked: Asked, see: See) -> object | None:
        name, text = asked.parts
        index = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else -1
        range_ = _range(asked)
        key = gpu.key(self._live.snapshot(), name, index)
        if key is None:
            return None
        columns = await self._past.gpu(name, key, index, range_)
        allowed = await see(gpu.namespaces(self._live.snapshot(), name, columns))
        cluster, number = self._live.snapshot(), self._live.pod_number
        return gpu.answer(cluster, name, index, range_, columns, number, allowed, self._over_for)

    async def _waiting(self, asked: Asked, see: See) -> object:
        allowed = await see(waiting.namespaces(self._live.waiting()))
        return waiting.answer(self._live.waiting(), allowed)

    async def _why(self, asked: Asked, see: See) -> object:
        namespace, name = asked.parts
        # First of all: who may not see it learns nothing from how long the answer takes.
        may = is_allowed(await see([namespace]), namespace)
        pod = why.find(self._live.snapshot(), namespace, name) if may else None
        if pod is None:
            sentence = why.NO_SUCH_POD.format(name=name[:LONGEST], namespace=namespace[:LONGEST])
            raise Problem(404, sentence, "", "kubectl get pods -A")
        events = await self._reading.events(pod)
        shared, own, now = self._copies.shared(), self._live.isolating(), self._now()
        # In a thread: with many nodes it takes long.
        explanation = await self._trials.run(lambda: why.explain(shared(), own, pod, events))
        allowed = await see(why.namespaces(explanation))
        return why.answer(explanation, now, allowed)

    async def _past_of_cluster(self, asked: Asked, see: See) -> object:
        columns = await self._past.cluster(_range(asked))
        peaks = self._history.peaks()
        allowed = await see(history.namespaces(self._live.snapshot(), peaks))
        steps = Run(history.answering(self._live.snapshot(), columns, peaks, allowed))
        for _ in steps:
            await asyncio.sleep(0)  # streams go on meanwhile
        return steps.result

    async def _health(self, asked: Asked, see: See) -> object:
        seen = await self._reading.ours()
        allowed = await see(health.namespaces(self._live.snapshot(), seen))
        return health.answer(self._live.snapshot(), seen, self._live.ages(), allowed)

    async def _search(self, asked: Asked, see: See) -> object:
        question = asked.query.get("q", "")[:LONGEST]
        allowed = await see(search.namespaces(self._live.snapshot(), question))
        return search.answer(self._live.snapshot(), question, allowed)

    async def _what_if(self, asked: Asked, see: See) -> object:
        try:
            question = msgspec.json.decode(asked.body, type=whatif.Question)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, NOT_JSON, str(error)) from None
        build = self._live.isolating()
        tried = await self._trials.run(lambda: whatif.trying(question, build(), None))
        return whatif.answer(tried, await see(whatif.namespaces(tried)))

    @property
    def _over_for(self) -> Callable[[str, str, str], float | None]:
        return functools.partial(self._history.over_for, now=self._now())


def _range(asked: Asked) -> str:
    range_ = asked.query.get("range", DEFAULT_RANGE)
    if range_ not in RANGES:
        raise UserError(f'unknown range "{range_:.20}"', f"ranges: {', '.join(RANGES)}", f"range={DEFAULT_RANGE}")
    return range_
