"""Asking a running extender for its explanation: `why --extender URL`.

The extender knows what the API server does not show: what is reserved for pods that are being bound, and which nodes
are in cool-down. It is asked with the standard library's HTTP, which loads quickly.
"""

import ssl
import threading
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import msgspec

import gpushare
from gpushare.core.explain.report import VERSION, Explanation
from gpushare.obs.errors import BAD_INPUT, CLUSTER_NOT_ASKED, UserError
from gpushare.view.why import pod_details

PATH: Final = "/gpushare-scheduler/explain"
COMPUTE_HERE: Final = "leave out --extender to compute it here"
PATIENCE, LIMIT = 1.0, 10.0  # seconds
LARGEST: Final = 64 << 20  # bytes; 5,000 nodes with 8 GPUs each are 5 MiB


class _Head(msgspec.Struct):
    version: int | None = None
    error: str | None = None


class Extender:
    """`notify` is called with what we wait for, after `patience` seconds without an answer."""

    def __init__(
        self, url: str, notify: Callable[[str], None], *, patience: float = PATIENCE, limit: float = LIMIT
    ) -> None:
        self._url, self._notify, self._patience, self._limit = url.rstrip("/"), notify, patience, limit
        if not _is_address(self._url):
            why = "an address begins with http:// or https://"
            raise UserError(f'--extender: "{url}" is no address', why, "--extender http://127.0.0.1:12345", BAD_INPUT)

    def explain(self, namespace: str, name: str) -> Explanation:
        """Its answer about a pod."""
        answer = self._ask(f"{PATH}?{urlencode({'namespace': namespace, 'pod': name})}", None)
        if answer is None:
            what = f"the extender does not know pod {namespace}/{name}"
            why = "it has not seen it yet, or it watches another cluster"
            raise UserError(what, why, COMPUTE_HERE, CLUSTER_NOT_ASKED)
        return answer

    def explain_draft(self, pod: pod_details.Pod) -> Explanation:
        """Its answer about a pod that does not exist yet."""
        answer = self._ask(PATH, msgspec.json.encode(pod))
        if answer is None:
            why = "it does not take pods that do not exist"
            raise UserError("the extender has no answer", why, COMPUTE_HERE, CLUSTER_NOT_ASKED)
        return answer

    def cannot_place(self, file: str) -> UserError:
        """The error for a file with more than one pod: it would have to place the first to know about the second."""
        why = "it answers about one pod at a time, and places none"
        return UserError(f"--extender cannot place what is in {file}", why, COMPUTE_HERE)

    def _ask(self, path: str, body: bytes | None) -> Explanation | None:
        notice = threading.Timer(self._patience, self._notify, (f"waiting for the extender at {self._url}",))
        notice.daemon = True
        notice.start()
        try:
            status, answer = self._fetch(path, body)
        except (OSError, HTTPException) as error:
            raise self._no_answer(error) from None
        finally:
            notice.cancel()
        return self._read(status, answer)

    def _fetch(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        request = Request(self._url + path, data=body, headers={"Content-Type": "application/json"} if body else {})
        opener = build_opener(ProxyHandler({}))  # an extender is inside the cluster, or at the end of a port-forward
        ends = time.monotonic() + self._limit
        try:
            with opener.open(request, timeout=self._limit) as response:
                return response.status, self._body(response, ends)
        except HTTPError as error:
            with error:
                return error.code, error.read(LARGEST)

    def _body(self, response: HTTPResponse, ends: float) -> bytes:
        parts, size = [], 0
        while part := response.read1(1 << 20):
            size += len(part)
            if time.monotonic() > ends or size > LARGEST:
                raise TimeoutError(f"its answer did not end within {self._limit:g} s")
            parts.append(part)
        return b"".join(parts)

    def _no_answer(self, error: Exception) -> UserError:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLError):
            why = f"TLS: {reason.reason or reason}"
        elif isinstance(reason, TimeoutError):
            why = str(reason) if reason.args and "did not end" in str(reason) else f"no answer within {self._limit:g} s"
        elif isinstance(reason, OSError):
            why = (reason.strerror or str(reason)).lower()
        else:
            why = str(reason) or type(reason).__name__
        return UserError(f"the extender at {self._url} does not answer", why, COMPUTE_HERE, CLUSTER_NOT_ASKED)

    def _read(self, status: int, answer: bytes) -> Explanation | None:
        try:
            head = msgspec.json.decode(answer, type=_Head)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._not_an_extender(f"its answer is not an explanation (status {status})") from None
        if head.version is None:
            raise self._not_an_extender(f"its answer has no version (status {status})")
        if head.version != VERSION:
            what = f"the extender at {self._url} speaks explain version {head.version}"
            why = f"this gpushare {gpushare.__version__} knows version {VERSION}"
            raise UserError(what, why, f"upgrade this gpushare, or {COMPUTE_HERE}", CLUSTER_NOT_ASKED)
        if head.error is not None:
            if status == 404:
                return None
            raise UserError(f"the extender at {self._url} cannot answer", head.error, COMPUTE_HERE, CLUSTER_NOT_ASKED)
        try:
            return msgspec.json.decode(answer, type=Explanation)
        except msgspec.MsgspecError as error:
            raise self._not_an_extender(str(error)) from None

    def _not_an_extender(self, why: str) -> UserError:
        return UserError(f"no gpushare extender at {self._url}", why, COMPUTE_HERE, CLUSTER_NOT_ASKED)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
