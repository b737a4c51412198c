"""HTTPS for the webhook: routes, limits, probes.

An API server gets either an AdmissionReview or a sentence with status 400, which it shows to whoever made the request.
"""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry

from gpushare.core.admission import guard
from gpushare.obs import http, log, metrics
from gpushare.webhook import reviews, rules

LARGEST_BODY = 7 << 20  # two objects of 3 MiB, the largest that an API server accepts, and a bit
BODY_SECONDS = 10.0
JSON = "application/json"
OUR_FAULT = "an error inside gpushare; see its log"

logger = log.get(__name__)
Answer = Callable[[bytes], bytes]


class Handlers:
    """`answers`: by path. `not_ready`: why no requests should come any more; empty if they may."""

    def __init__(self, answers: Mapping[str, Answer], not_ready: Callable[[], str]) -> None:
        self.registry = CollectorRegistry()
        self._not_ready = not_ready
        self._latency = metrics.latencies(
            self.registry, "gpushare_webhook_request_seconds", "Time to answer a request.", "path", answers
        )
        self._answers = answers

    def application(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY)
        routes = [web.post(path, self._asked(path, answer)) for path, answer in self._answers.items()]
        app.add_routes([*routes, *http.probes(lambda: "", self._not_ready, self.registry)])
        return app

    def _asked(self, path: str, answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
        latency = self._latency[path]

        async def handle(req: web.Request) -> web.Response:
            try:
                body = await http.body(req, LARGEST_BODY, BODY_SECONDS)
            except http.BadBody as error:
                return _closing(web.Response(status=400, text=str(error)))
            with metrics.Timed(latency):
                response = _safely(path, answer, body)
            # Before the end: the connection is not used again, so the next request goes to another replica.
            return _closing(response) if self._not_ready() else response

        return handle


def answers(choices: rules.Choices, validated: Answer, prioritized: Answer) -> dict[str, Answer]:
    """Every path. `validated` knows what the admin chose, and the nodes; `prioritized` the cluster's classes."""
    by, scheduler = guard.writers(choices.namespace), choices.scheduler
    found: dict[str, Answer] = {
        rules.MUTATE_PATH: reviews.pin,
        rules.NVIDIA_PATH: reviews.pin_nvidia,
        rules.UNASKED_PATH: reviews.void,
        rules.GUARD_PATH: lambda body: reviews.guarded(body, by),
        rules.VALIDATE_PATH: validated,
        rules.PRIORITY_PATH: prioritized,
    }
    if scheduler:
        found[rules.SCHEDULER_PATH.format(name=scheduler)] = lambda body: reviews.assigned(body, scheduler)
    return found


def _safely(path: str, answer: Answer, body: bytes) -> web.Response:
    try:
        return web.Response(body=answer(body), content_type=JSON)
    except reviews.BadReview as error:
        return web.Response(status=400, text=str(error))
    except Exception as error:  # noqa: BLE001 - whatever our bug is, the API server must get a sentence
        logger.error("request failed", path=path, error=repr(error))
        return web.Response(status=500, text=OUR_FAULT)


def _closing(response: web.Response) -> web.Response:
    response.force_close()
    return response
