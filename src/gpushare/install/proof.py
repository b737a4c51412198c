"""Is kube-scheduler well with what it was given, and does it ask the extender? Asked until it is so, or time is up."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohttp

from gpushare.install import configuration, flags, manifest
from gpushare.install.cluster import Leader, Schedulers
from gpushare.install.entries import FOLDER, OVER_TLS
from gpushare.install.manifest import Manifest
from gpushare.install.plan import Plan
from gpushare.install.question import Placed, Question
from gpushare.install.store import Store
from gpushare.kube import failures
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.obs import errors

T = TypeVar("T")

PAUSE: Final = 0.5  # seconds between two looks
REQUEST_SECONDS: Final = 5.0
LEADER_SECONDS: Final = 20.0  # a lease is renewed every few seconds

BY_THIS: Final = "kube-scheduler here is healthy, and has asked the extender"
BY_LEADER: Final = "kube-scheduler here is healthy; the one on {node}, which leads, has asked the extender"
NOT_LEADING: Final = (
    "kube-scheduler here is healthy with its new configuration; the one on {node} leads and does not know the extender "
    "yet, so nothing was asked: run this command there too"
)
PLACED: Final = (
    "kube-scheduler put a pod on node {node} that our extender refuses: it did not ask, or it asked an older extender"
)


class NotProven(Exception):
    """In the time that was given. The text says what was seen last."""


class Control:
    """The control plane that a plan is for. `seconds`: how long to wait."""

    def __init__(self, api: Api, node: str, store: Store, seconds: float) -> None:
        self._api, self._node, self._store, self._seconds = api, node, store, seconds
        self._seen = "nothing was seen"

    async def check(self, plan: Plan) -> None:
        """Whether it makes sense to begin. Nothing is changed yet."""
        try:
            await self._check_pods(plan)
        except KubeError as error:
            raise failures.explain(error, self._api.access) from None
        url = extender_of(plan)
        why = await self._extender_trouble(url)
        if why:
            way = "kubectl apply -f deploy/extender.yaml, or the chart with scheduler.mode extender; or --extender-url"
            raise errors.not_asked(f"the extender is not ready: {url}", why, way)

    async def proven(self, plan: Plan) -> str:
        """How it was proven, in a sentence."""
        question = Question(self._api, plan.manifest.namespace, plan.scheduler)
        schedulers = self._schedulers(plan)
        try:
            async with asyncio.timeout(self._seconds):
                await self._until(lambda: self._runs(schedulers, plan.manifest, (plan.flag, plan.value)))
                leader = await self._until(lambda: self._leader(schedulers))
                if not leader.asks_extender:
                    return NOT_LEADING.format(node=leader.node)
                await self._until(lambda: self._once(question.ask))
                await self._until(lambda: self._asked(question))
        except TimeoutError:
            raise NotProven(await self._reason(schedulers)) from None
        except Placed as placed:
            another = await self._leads_now(schedulers)
            if another is not None and not another.asks_extender:  # it has taken over just now
                return NOT_LEADING.format(node=another.node)
            raise NotProven(PLACED.format(node=placed)) from None
        finally:
            with contextlib.suppress(KubeError):
                await question.end()
        return BY_THIS if leader.node == self._node else BY_LEADER.format(node=leader.node)

    async def back(self, found: Manifest) -> None:
        """Returns when the scheduler runs as this manifest says."""
        schedulers = Schedulers(self._api, found.namespace, found.pod_name, self._node, ("", ""))
        try:
            async with asyncio.timeout(self._seconds):
                await self._until(lambda: self._runs(schedulers, found, None))
        except TimeoutError:
            raise NotProven(self._seen) from None

    # What is looked at

    async def _check_pods(self, plan: Plan) -> None:
        schedulers = self._schedulers(plan)
        if await schedulers.here() is None:
            others = ", ".join(pod.metadata.name for pod in await schedulers.all()) or "none"
            what = f"no pod {plan.manifest.namespace}/{schedulers.pod_name}"
            why = f"kubelet does not run {plan.manifest.name}, or the node has another name; there are: {others}"
            raise errors.not_asked(what, why, "--node-name NAME, or --manifest FILE")
        question = Question(self._api, plan.manifest.namespace, plan.scheduler)
        given = await question.try_out()
        if given != plan.scheduler:
            why = f"admission gives pods that ask for GPU memory to {given}, and this is {plan.scheduler}"
            raise errors.UserError("this scheduler is not the one for GPU pods", why, "scheduler.mode: extender")
        await question.end()  # of earlier runs

    async def _runs(self, schedulers: Schedulers, found: Manifest, flag: tuple[str, str] | None) -> bool | None:
        """`flag`: with this flag and value; None: with the words of the manifest."""
        pod = await schedulers.here()
        words = pod.words if pod is not None else []
        there = flags.value(words, flag[0]) == flag[1] if flag else words == found.words
        if pod is None or not there:
            self._seen = "kubelet has not taken up the new manifest"
            return None
        trouble = pod.trouble() or await self._health_trouble(found.health)
        if trouble:
            self._seen = f"kube-scheduler does not run: {trouble}"
            return None
        return True

    async def _leads_now(self, schedulers: Schedulers) -> Leader | None:
        """None: that is not known in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(LEADER_SECONDS, self._seconds)):
                return await self._until(lambda: self._leader(schedulers))
        return None

    async def _leader(self, schedulers: Schedulers) -> Leader | None:
        self._seen = "no kube-scheduler leads"
        return await schedulers.leader()

    async def _once(self, ask: Callable[[], Awaitable[None]]) -> bool:
        await ask()
        return True

    async def _asked(self, question: Question) -> bool | None:
        asked, said = await question.answer()
        self._seen = f"kube-scheduler says: {said}" if said else "kube-scheduler has not looked at the pod yet"
        return asked or None

    async def _health_trouble(self, url: str) -> str:
        status, why = await get(url, None)
        return "" if status == 200 else f"{url}: {why}"

    async def _extender_trouble(self, url: str) -> str:
        parts = urlsplit(url)
        context, name = None, None
        if parts.scheme == "https":
            try:
                context, name = _client(self._store), str(OVER_TLS["tlsConfig"]["serverName"])
            except OSError as error:
                return f"{FOLDER} needs ca.crt, client.crt and client.key: {error.strerror or error}"
        status, why = await get(f"{parts.scheme}://{parts.netloc}/readyz", context, name)
        return "" if status == 200 else why

    async def _until(self, look: Callable[[], Awaitable[T | None]]) -> T:
        """What cannot be asked now, because the API server is busy or starting, is asked again."""
        while True:
            try:
                found = await look()
            except KubeError as error:
                found, self._seen = None, str(error)
            if found is not None:
                return found
            await asyncio.sleep(PAUSE)

    async def _reason(self, schedulers: Schedulers) -> str:
        words = "" if "says:" in self._seen else await schedulers.last_words()
        return f"{self._seen}; its log ends: {words}" if words else self._seen

    def _schedulers(self, plan: Plan) -> Schedulers:
        return Schedulers(self._api, plan.manifest.namespace, plan.manifest.pod_name, self._node, plan.lease)


def extender_of(plan: Plan) -> str:
    """Where the configuration says that the extender is."""
    content = manifest.parsed(plan.content, plan.path)
    return next(str(one["urlPrefix"]) for one in content["extenders"] if configuration.is_ours(one, plan.url))


async def get(url: str, context: ssl.SSLContext | None, server_name: str | None = None) -> tuple[int, str]:
    """The status of an answer, 0 if there is none; and what is wrong in words. Without a context anybody is trusted:
    kube-scheduler makes its own certificate."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, ssl=context or False, server_hostname=server_name) as response,
        ):
            text = (await response.text())[:200]
            return response.status, f"it answers {response.status}: {text}"
    except (aiohttp.ClientError, OSError) as error:
        reason = getattr(getattr(error, "os_error", None), "strerror", None) or str(error) or "no answer in time"
        return 0, reason


def _client(store: Store) -> ssl.SSLContext:
    """As kube-scheduler asks the extender over TLS."""
    tls = OVER_TLS["tlsConfig"]
    context = ssl.create_default_context(cafile=str(store.on_machine(tls["caFile"])))
    context.load_cert_chain(store.on_machine(tls["certFile"]), store.on_machine(tls["keyFile"]))
    return context
