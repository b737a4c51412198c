"""AdmissionReviews as bytes in and bytes out: what each path of the webhook answers.

Pure. What is decided is in `core/admission`; here a review is read, and a decision becomes a patch, a refusal or a
warning. A review that cannot be read is a `BadReview` with its sentence.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gpushare.core.admission import containers, guard, pinning, priority, scheduler_name, unasked, validation
from gpushare.core.admission.containers import Addition, Object
from gpushare.core.facts import names, objects, vitals
from gpushare.core.ledger.ledger import Ledger

FORBIDDEN: Final = 403
LONGEST_WARNING: Final = 250  # characters: API servers cut longer ones
DENY, WARN, OFF = "deny", "warn", "off"

T = TypeVar("T")
Additions = Callable[[Object], list[Addition]]


class BadReview(Exception):
    """This is no AdmissionReview; the text says why."""


class Resource(objects.Struct):
    resource: str = ""


class User(objects.Struct):
    username: str = ""


class Asked(objects.Struct):
    uid: str = ""
    resource: Resource = msgspec.field(default_factory=Resource)
    sub_resource: str | None = None
    namespace: str | None = None
    user_info: User = msgspec.field(default_factory=User)
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class Review(objects.Struct):
    request: Asked | None = None


class _Status(objects.Struct, omit_defaults=False):
    message: str
    code: int = FORBIDDEN
    reason: str = "Forbidden"


class _Response(objects.Struct):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str | None = None
    patch: str | None = None
    warnings: list[str] | None = None


class _Annotated(objects.Struct):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)


class _Template(objects.Struct):
    metadata: objects.Metadata | None = None
    spec: objects.PodSpec | None = None


class _JobSpec(objects.Struct):
    template: _Template | None = None


class _Job(objects.Struct):
    spec: _JobSpec | None = None


class _WorkloadSpec(_JobSpec):
    job_template: _Job | None = None


class _Workload(objects.Struct):
    spec: _WorkloadSpec | None = None


class On(NamedTuple):
    """What happens to a pod that can never run (`invalid`), or on no node of this cluster (`unplaceable`)."""

    invalid: str = DENY
    unplaceable: str = WARN


_review = msgspec.json.Decoder(Review)
_object = msgspec.json.Decoder(dict[str, Any])
_annotated = msgspec.json.Decoder(_Annotated | None)
_pod = msgspec.json.Decoder(objects.Pod)
_workload = msgspec.json.Decoder(_Workload)


def pin(body: bytes) -> bytes:
    return _patched(_read(body), pinning.pin)


def pin_nvidia(body: bytes) -> bytes:
    return _patched(_read(body), lambda pod: pinning.pin(pod, [names.NVIDIA_GPU]))


def void(body: bytes) -> bytes:
    asked = _read(body)
    if refused := unasked.too_many(_decoded(_object, asked.object)):
        return _answer(asked.uid, refused=refused)
    if asked.sub_resource:
        before = _decoded(_object, asked.old_object)
        return _patched(asked, lambda pod: unasked.void_debugging(pod, before))
    return _patched(asked, unasked.void)


def prioritized(body: bytes, classes: Mapping[str, objects.PriorityClass]) -> bytes:
    """`classes`: those that the cluster has; none if they are not known."""
    asked = _read(body)
    found = classes.get(priority.wanted(_decoded(_object, asked.object)))
    return _answer(asked.uid, patch=priority.json_patch(found) if found is not None else ())


def assigned(body: bytes, scheduler: str) -> bytes:
    asked = _read(body)
    return _answer(asked.uid, patch=scheduler_name.json_patch(_decoded(_object, asked.object), scheduler))


def guarded(body: bytes, by: guard.Writers = guard.BY_DEFAULT) -> bytes:
    asked = _read(body)
    if asked.resource.resource == vitals.PLURAL:
        return _answer(asked.uid, refused=guard.gpu_node(asked.user_info.username, by))
    before, after = (_annotations(raw) for raw in (asked.old_object, asked.object))
    judge = guard.node if asked.resource.resource == "nodes" else guard.pod
    return _answer(asked.uid, refused=judge(asked.user_info.username, before, after, by))


def validated(body: bytes, on: On, ledger: Ledger | None) -> bytes:
    """`ledger`: the nodes of the cluster; None if they are not known."""
    asked = _read(body)
    if asked.resource.resource == "pods":
        pod, denies = _decoded(_pod, asked.object), True
    else:
        pod, denies = _of_template(_decoded(_workload, asked.object)), False  # they may be older than this rule
    pod.metadata.namespace = asked.namespace or pod.metadata.namespace
    if why := validation.never(pod):
        return _said(asked.uid, why, on.invalid if denies else WARN)
    if on.unplaceable == OFF or ledger is None or not denies:
        return _answer(asked.uid)
    return _said(asked.uid, validation.never_here(ledger, pod), on.unplaceable)


def _said(uid: str, why: str, how: str) -> bytes:
    if how == DENY:
        return _answer(uid, refused=why)
    return _answer(uid, warnings=[_cut(f"gpushare: {why}")] if why else [])


def _patched(asked: Asked, additions: Additions) -> bytes:
    pod = _decoded(_object, asked.object)
    return _answer(asked.uid, patch=list(containers.json_patch(pod, additions(pod))))


def _of_template(workload: _Workload) -> objects.Pod:
    spec = workload.spec or _WorkloadSpec()
    template = (spec.job_template.spec if spec.job_template else spec) or _JobSpec()
    found = template.template or _Template()
    return objects.Pod(found.metadata or objects.Metadata(), found.spec or objects.PodSpec())


def _annotations(raw: msgspec.Raw) -> dict[str, str]:
    found = _decoded(_annotated, raw)
    return (found.metadata.annotations if found else None) or {}


def _read(body: bytes) -> Asked:
    try:
        asked = _review.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadReview(f"not an AdmissionReview: {error}") from None
    if asked is None or not asked.uid:
        raise BadReview("not an AdmissionReview: it has no request with a uid")
    return asked


def _decoded(decoder: "msgspec.json.Decoder[T]", raw: msgspec.Raw) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadReview(f"the object of the AdmissionReview cannot be read: {error}") from None


def _answer(uid: str, *, refused: str = "", patch: Sequence[Object] = (), warnings: Sequence[str] = ()) -> bytes:
    response = _Response(uid, not refused)
    if refused:
        response.status = _Status(refused)
    if patch:
        response.patch_type, response.patch = "JSONPatch", base64.b64encode(msgspec.json.encode(patch)).decode()
    if warnings:
        response.warnings = list(warnings)
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_WARNING else text[: LONGEST_WARNING - 1] + "…"
