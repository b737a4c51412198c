"""HTTP for the extender: routes, limits, and never a 5xx.

Plain requests of schedulers are read and answered by `serving`, all others by aiohttp. Every answer is 200 with the
protocol's own `Error`, because kube-scheduler discards the body of any other status. A slow sender, a huge body or a
flood of connections harms only its own connection.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from ssl import SSLContext

from aiohttp import web

import gpushare
from gpushare.core.facts import names
from gpushare.core.steps import Steps
from gpushare.extender import wire
from gpushare.extender.binder import Binder
from gpushare.extender.metrics import Metrics
from gpushare.extender.serving import heads
from gpushare.extender.serving.demand import Demand
from gpushare.extender.serving.listening import Listening, listen
from gpushare.extender.slices import in_slices
from gpushare.extender.verbs import Verbs
from gpushare.obs import http, log, metrics

PREFIX = names.EXTENDER_PATH
LARGEST_BODY = 256 << 20  # 5,000 whole nodes of 30 KB are 150 MB
BODY_SECONDS = 10.0
JSON = "application/json"
OTHER_PORT = "--port N (and change urlPrefix in the scheduler's configuration)"
OUR_FAULT = "an error inside gpushare; see its log"

logger = log.get(__name__)
Answer = Callable[[bytes], bytes]
Failed = Callable[[str], bytes]


class Handlers:
    def __init__(
        self, verbs: Verbs, binder: Binder, metrics: Metrics, not_ready: Callable[[], str], demand: Demand
    ) -> None:
        self._verbs, self._binder, self._metrics = verbs, binder, metrics
        self._not_ready, self._demand = not_ready, demand

    def application(self) -> web.Application:
        """Answers every request."""
        app = web.Application(client_max_size=LARGEST_BODY)
        app.add_routes(
            [
                *(web.post(f"{PREFIX}/{verb}", self._asked(*asked)) for verb, asked in self._questions().items()),
                web.post(f"{PREFIX}/bind", self._bind),
                web.get(f"{PREFIX}/inspect", self._inspect),
                web.get(f"{PREFIX}/inspect/{{node}}", self._inspect),
                web.get(f"{PREFIX}/explain", self._explain),
                web.post(f"{PREFIX}/explain", self._explain_pod),
                web.get("/version", self._version),
                *http.probes(lambda: "", self._not_ready, self._metrics.registry),
            ]
        )
        return app

    def plain(self) -> dict[str, heads.Verb]:
        """What schedulers ask for each pod, by path. The same answers."""
        verbs = {f"{PREFIX}/{verb}": _at_once(answer) for verb, (answer, _) in self._questions().items()}
        return {**verbs, f"{PREFIX}/bind": self._begin_bind}

    def _questions(self) -> dict[str, tuple[Answer, Failed]]:
        """By verb: answers, and what is answered instead if something is wrong."""
        verbs: dict[str, tuple[Answer, Failed]] = {
            "filter": (self._verbs.filter, _failed_filter),
            "choose": (self._verbs.choose, _failed_filter),
            "prioritize": (self._verbs.prioritize, lambda _: b"[]"),
            "preempt": (self._verbs.preempt, lambda _: b"{}"),
        }
        return {verb: (self._timed(verb, answer, failed), failed) for verb, (answer, failed) in verbs.items()}

    def _timed(self, verb: str, answer: Answer, failed: Failed) -> Answer:
        latency = self._metrics.latency[verb]

        def timed(body: bytes) -> bytes:
            self._demand.asked()
            with metrics.Timed(latency):
                return _safely(verb, answer, failed, body)

        return timed

    def _asked(self, answer: Answer, failed: Failed) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(req: web.Request) -> web.Response:
            try:
                body = await _body(req)
            except wire.BadRequest as error:
                return _closing(failed(str(error)))
            return web.Response(body=answer(body), content_type=JSON)

        return handle

    async def _bind(self, req: web.Request) -> web.Response:
        try:
            body = await _body(req)
        except wire.BadRequest as error:
            return _closing(_failed_bind(str(error)))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._begin_bind(body, lambda answered: None if answer.done() else answer.set_result(answered))
        return web.Response(body=await answer, content_type=JSON)

    def _begin_bind(self, body: bytes, reply: heads.Reply) -> None:
        begun = time.perf_counter()
        self._demand.asked()

        def tell(outcome: str | Exception) -> None:
            if isinstance(outcome, Exception):
                logger.error("request failed", verb="bind", error=repr(outcome))
            self._metrics.latency["bind"].observe(time.perf_counter() - begun)
            reply(_failed_bind(OUR_FAULT if isinstance(outcome, Exception) else outcome))

        try:
            args = wire.read_bind(body)
            problem = self._not_ready()
            if not problem:
                self._binder.begin(args, tell)
                return
        except wire.BadRequest as error:
            tell(str(error))
        except Exception as error:  # noqa: BLE001 - whatever our bug is, the scheduler must get a sentence
            tell(error)
        else:
            tell(problem)

    async def _inspect(self, req: web.Request) -> web.Response:
        return self._answer("inspect", lambda: self._verbs.inspect(req.match_info.get("node")))

    async def _explain(self, req: web.Request) -> web.Response:
        namespace, pod = req.query.get("namespace", "default"), req.query.get("pod", "")
        return await self._answer_in_slices(self._verbs.explain(namespace, pod))

    async def _explain_pod(self, req: web.Request) -> web.Response:
        try:
            body = await _body(req)
        except wire.BadRequest as error:
            return _closing(wire.encode({"version": 1, "error": str(error)}))
        return await self._answer_in_slices(self._verbs.explain_pod(body))

    async def _answer_in_slices(self, steps: Steps[tuple[int, bytes]]) -> web.Response:
        """An answer for people that takes long: schedulers are answered in between."""
        with metrics.Timed(self._metrics.latency["explain"]):
            try:
                status, body = await in_slices(steps)
            except Exception as error:  # noqa: BLE001 - as above
                return _failed("explain", error)
        return web.Response(status=status, body=body, content_type=JSON)

    def _answer(self, verb: str, answer: Callable[[], tuple[int, bytes]]) -> web.Response:
        """An answer for people."""
        with metrics.Timed(self._metrics.latency[verb]):
            try:
                status, body = answer()
            except Exception as error:  # noqa: BLE001 - as above
                return _failed(verb, error)
        return web.Response(status=status, body=body, content_type=JSON)

    async def _version(self, _: web.Request) -> web.Response:
        return web.Response(text=gpushare.__version__)


async def serve(handlers: Handlers, host: str, ports: list[int], tls: SSLContext | None) -> Listening:
    """Starts listening. Stop with `cleanup()`, which lets running requests finish."""
    return await listen(handlers.application(), handlers.plain(), host, ports, tls=tls, other_port=OTHER_PORT)


async def _body(req: web.Request) -> bytes:
    try:
        return await http.body(req, LARGEST_BODY, BODY_SECONDS)
    except http.BadBody as error:
        raise wire.BadRequest(str(error)) from None


def _at_once(answer: Answer) -> heads.Verb:
    return lambda body, reply: reply(answer(body))


def _safely(verb: str, answer: Answer, failed: Failed, body: bytes) -> bytes:
    try:
        return answer(body)
    except Exception as error:  # noqa: BLE001 - a bug of ours must not look like a network problem
        logger.error("request failed", verb=verb, error=repr(error))
        return failed(OUR_FAULT)


def _failed(verb: str, error: Exception) -> web.Response:
    logger.error("request failed", verb=verb, error=repr(error))
    return web.Response(body=wire.encode({"version": 1, "nodes": [], "error": OUR_FAULT}), content_type=JSON)


def _closing(body: bytes) -> web.Response:
    """An answer that closes the connection: what is left of the body would be read as the next request."""
    response = web.Response(body=body, content_type=JSON)
    response.force_close()
    return response


def _failed_filter(why: str) -> bytes:
    return wire.encode(wire.FilterResult(None, [], {}, {}, why))


def _failed_bind(why: str) -> bytes:
    return wire.encode({"Error": why})
