"""The pod that the API server will make of one in a file: admission decides, among other things, which nodes take it.

A dry run answers exactly that: the API server does everything but create the pod, or says why it would refuse it. Where
a user may not create pods, we work it out: from gpushare's own admission policy if it can be read, else from the nodes
if all of them pin in the same way. If two pods are still possible, the caller gets both.
"""

import re
from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from gpushare.core.admission import containers, priority, scheduler_name
from gpushare.core.explain import report
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import Pin, Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.kube.errors import ApiError
from gpushare.obs.errors import UserError
from gpushare.view import snapshot
from gpushare.view.source import Drafting, Forbidden, NotFound, Source
from gpushare.view.why import pod_details
from gpushare.view.why.files.admission_policy import Policy
from gpushare.view.why.files.manifests import Item

NOT_TRIED = (
    "pods in namespace {namespace} are checked without a dry run ({why}): quotas, limit ranges and changes by other "
    "admission are not considered."
)
NO_DRY_RUN = "nothing is sent to Kubernetes from here"
BY_DRY_RUN = "gpushare why -f FILE, which makes a dry run"
NO_NAMESPACE = "there is no namespace {namespace} yet"
NO_RIGHT = 'user "{user}" may not create pods there'
ASSIGNED = "{name} will be placed by {scheduler}: admission gives it this schedulerName."
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses/"
NO_CLASS = "there is no PriorityClass {name}: counted as priority 0, and the API server will refuse the pod."
UNREADABLE_CLASS = "PriorityClass {name} may not be read: counted as priority 0."
LONGEST_START = 57  # of a generated name, which may have 63 characters
_ABOUT_ITSELF = re.compile(r'^(?:pods|Pod) "[^"]*" is (?:forbidden|invalid): (?:: )?')
_INVALID = (400, 413, 422)  # something in the pod is wrong; 403 may be about the pod as well
_DENIED = "denied the request"  # a webhook refuses, with any status
_NO_DRY_RUN = "does not support dry run"  # a webhook that makes every dry run fail


class Admitted(msgspec.Struct):
    """`other`: the pod that it may become instead, if that is not known. `refused`: the API server's message."""

    pod: pod_details.Pod
    how: str  # one of report.ADMISSIONS
    other: pod_details.Pod | None = None
    refused: str = ""
    invalid: bool = False  # refused because of what is written in it


class Admission:
    """`coming`: namespaces that the file itself makes, with their labels. `note` says what is not considered."""

    def __init__(
        self,
        source: Source,
        ledger: Ledger,
        coming: Mapping[str, Mapping[str, str]],
        note: Callable[[str], None],
        drafting: Drafting | None,
    ) -> None:
        """`drafting`: for dry runs; None: there are none."""
        self._source, self._ledger, self._note, self._drafting = source, ledger, note, drafting
        self._policy = Policy(source, coming)
        self._noted: set[str] = set()

    def way(self, namespace: str) -> str:
        """What the user needs to get one answer instead of two."""
        rights = [BY_DRY_RUN if self._drafting is None else f"the right to create pods in namespace {namespace}"]
        rights += [self._policy.lacking.way] if self._policy.lacking is not None else []
        return ", or ".join(rights)

    def of(self, item: Item) -> Admitted:
        if self._drafting is None:
            self._note_once(item, NO_DRY_RUN)
            return self._worked_out(item)
        path = f"/api/v1/namespaces/{quote(item.pod.metadata.namespace, safe='')}/pods"
        try:
            pod = snapshot.decode(_tried(self._drafting, item, path), pod_details.Pod, path)
            if not pod.spec.containers:
                raise UserError("the API server's answer to a dry run", "it is no pod", "kubectl version")
        except ApiError as error:
            if _is_about_the_pod(error):
                words = _ABOUT_ITSELF.sub("", error.message).rstrip(".") or str(error)
                return Admitted(item.pod, report.DRY_RUN, refused=words, invalid=error.status in _INVALID)
            self._note_once(item, _why_not(error, item.pod.metadata.namespace))
            return self._worked_out(item)
        except UserError as error:
            self._note_once(item, f"{error.what}: {error.why}")
            return self._worked_out(item)
        meta = msgspec.structs.replace(
            item.pod.metadata, annotations=pod.metadata.annotations, labels=pod.metadata.labels
        )
        self._note_scheduler(item, pod.spec.scheduler_name)
        return Admitted(pod_details.Pod(meta, pod.spec), report.DRY_RUN)

    def _worked_out(self, item: Item) -> Admitted:
        pod = item.pod
        parsed = request.parse(pod, None)
        if isinstance(parsed, Request):
            self._set_scheduler(item)
        self._set_priority(item)
        if not isinstance(parsed, Request) or parsed.pin is not Pin.PLUGIN:
            return Admitted(pod, report.READ)  # it has the env already, written by hand: the policy adds nothing
        changes = self._policy.changes(pod)
        if changes is not None:
            return Admitted(pinned(pod) if changes else pod, report.READ)
        direct = {state.facts.pin is Pin.DIRECT for state in self._ledger.nodes() if state.facts is not None}
        if len(direct) > 1:
            return Admitted(pod, report.UNKNOWN, pinned(pod))
        return Admitted(pinned(pod) if True in direct else pod, report.BY_NODES)

    def _set_scheduler(self, item: Item) -> None:
        spec = item.pod.spec
        if (spec.scheduler_name or "") in scheduler_name.OPEN and (assigned := self._policy.scheduler(item.pod)):
            self._note_scheduler(item, assigned)
            spec.scheduler_name = assigned

    def _note_scheduler(self, item: Item, scheduler: str | None) -> None:
        """If it is another than the file says."""
        if (scheduler or "") not in (*scheduler_name.OPEN, item.pod.spec.scheduler_name):
            self._note(ASSIGNED.format(name=item.name, scheduler=scheduler))

    def _set_priority(self, item: Item) -> None:
        """From the class that a pod names, or that KETI's annotation gives it where the cluster has that class."""
        name, spec = item.priority_class, item.pod.spec
        if not name and spec.scheduler_name == priority.SCHEDULER:
            name = priority.named((item.pod.metadata.annotations or {}).get(names.PRIORITY, ""))
        if not name or spec.priority is not None:
            return
        path = CLASSES + quote(name, safe="")
        try:
            priority_class = snapshot.decode(self._source.get(path), objects.PriorityClass, path)
        except NotFound:
            if item.priority_class:
                self._note(NO_CLASS.format(name=name))
        except Forbidden:
            self._note(UNREADABLE_CLASS.format(name=name))
        else:
            spec.priority = priority_class.value
            spec.preemption_policy = spec.preemption_policy or priority_class.preemption_policy

    def _note_once(self, item: Item, why: str) -> None:
        note = NOT_TRIED.format(namespace=item.pod.metadata.namespace, why=why)
        if note not in self._noted:
            self._noted.add(note)
            self._note(note)


def _tried(source: Drafting, item: Item, path: str) -> bytes:
    try:
        return source.dry_run(path, _draft(item, generated=item.generated))
    except ApiError as error:
        if error.status != 409 or item.generated:
            raise
        return source.dry_run(path, _draft(item, generated=True))  # there is one of that name already


def pinned(pod: pod_details.Pod) -> pod_details.Pod:
    """The pod with the env that the policy of deploy/admission.yaml adds: the part that decisions read."""
    apps, inits = pod.spec.containers or [], pod.spec.init_containers or []
    if max(len(apps), len(inits)) > containers.MOST:
        return pod
    spec = msgspec.structs.replace(
        pod.spec,
        containers=[_with_env(one, f"{names.VISIBLE_PREFIX}{i}") for i, one in enumerate(apps)],
        init_containers=[_with_env(one, f"{names.VISIBLE_PREFIX}init-{i}") for i, one in enumerate(inits)],
    )
    return msgspec.structs.replace(pod, spec=spec)


def _with_env(container: objects.Container, annotation: str) -> objects.Container:
    limits = (container.resources.limits if container.resources else None) or {}
    if limits.keys().isdisjoint(names.PINNED):
        return container
    reference = objects.FieldRef(f"metadata.annotations['{annotation}']")
    entry = objects.EnvVar(names.VISIBLE_DEVICES, objects.EnvSource(reference))
    return msgspec.structs.replace(container, env=[*(container.env or ()), entry])


def _draft(item: Item, *, generated: bool) -> bytes:
    """The pod as it would be sent, with all that was written in its spec."""
    meta = item.pod.metadata
    named = {"generateName": f"{item.name[:LONGEST_START].rstrip('-.')}-"} if generated else {"name": item.name}
    kept = {"namespace": meta.namespace, "annotations": meta.annotations, "labels": meta.labels}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": {**named, **kept}, "spec": item.spec})


def _is_about_the_pod(error: ApiError) -> bool:
    """Whether the pod itself would be refused. Other errors are about the user, or about dry runs."""
    if _NO_DRY_RUN in error.message or _lacks_the_right(error):
        return False
    return error.status in (*_INVALID, 403) or _DENIED in error.message


def _lacks_the_right(error: ApiError) -> str:
    """The user who may not create pods there; empty if the error is another."""
    from gpushare.kube import failures  # only when something fails: it knows all about logging in

    match = failures.FORBIDDEN.search(error.message) if error.status == 403 else None
    return match["user"] if match else ""


def _why_not(error: ApiError, namespace: str) -> str:
    if error.status == 404:
        return NO_NAMESPACE.format(namespace=namespace)
    user = _lacks_the_right(error)
    return NO_RIGHT.format(user=user) if user else f"the API server says: {error.message.rstrip('.')}"
