"""`gpushare why`: why a pod is Pending, what would make it fit, or where it runs.

It reads the pod and then the cluster, gathers the `evidence` (the core decides, or a running extender is asked), builds
the `explanation` and shows it. Who may read only their own namespace gets what the pod itself tells.
"""

from typing import TYPE_CHECKING, BinaryIO

import msgspec

from gpushare.core.explain.report import VERSION, Explanation
from gpushare.core.facts import objects, request
from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.vitals import FullStatus
from gpushare.ctl import formats
from gpushare.ctl.screen import Screen
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view import snapshot, unhealthy, vitals, wording
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Drafting, Forbidden, NotFound, Source
from gpushare.view.why import by_count, evidence, limited_rights, of_pod, placing, pod_details
from gpushare.view.why.evidence import Evidence
from gpushare.view.why.text import page
from gpushare.view.why.text.page import Style

if TYPE_CHECKING:
    from gpushare.ctl.why.extender_client import Extender

POD_WORDS = ("pod", "pods", "po")  # as kubectl prints and takes them
MOST_NAMES = 5


class Options(msgspec.Struct, frozen=True):
    pod: str = ""  # name, namespace/name or pod/name
    namespace: str = ""  # as -n says it
    default_namespace: str = "default"  # of the context
    filename: str = ""  # instead of a pod; "-" is stdin
    output: str = ""  # one of formats.FORMATS, or empty for people
    extender: str = ""  # its address; empty: it is worked out here
    policy: str = ""  # that of the extender; empty: the default
    program: str = "gpushare"  # the name it was called by


class Answer(msgspec.Struct, frozen=True):
    """An explanation, whether kube-scheduler's part was checked, and the right that was missing."""

    explanation: Explanation
    checked: bool = True
    lacking: Forbidden | None = None


def run(options: Options, source: Drafting, screen: Screen, *, now: float, stdin: BinaryIO) -> int:
    """Answers and returns the exit code. A UserError says what went wrong; stdout is empty then."""
    extender = _extender(options.extender, screen) if options.extender else None
    if options.filename:
        from gpushare.ctl.why import from_file

        file = from_file.read(options.filename, options.namespace or options.default_namespace, stdin)
        for note in file.notes:
            screen.note(note)
        explanations = from_file.explain(file, source, extender, now, screen.note, options.policy)
        _show(explanations, options, screen, Style(now, file=file.name), several=True)
        return _exit_code(explanations)
    answer = _of_pod(options, source, extender, now)
    _show([answer.explanation], options, screen, Style(now, looked=answer.checked), several=False)
    if answer.lacking is not None:
        screen.note(answer.lacking.render().removeprefix("error: "))
    return _exit_code([answer.explanation])


def _exit_code(explanations: list[Explanation]) -> int:
    """0: all of them run or fit; 1: one does not; 3: what could be read says nothing about it."""
    worst = 0
    for one in explanations:
        refused = CLUSTER_NOT_ASKED if one.code == limited_rights.UNKNOWN else 1
        worst = max(worst, 0 if one.verdict in ("runs", "fits") else refused)
    return worst


def _show(explanations: list[Explanation], options: Options, screen: Screen, style: Style, *, several: bool) -> None:
    if options.output in formats.FOR_PROGRAMS:
        shown = {"version": VERSION, "items": explanations} if several else explanations[0]
        screen.say(formats.dump(shown, options.output))
        return
    style = style._replace(wide=options.output == formats.WIDE, width=screen.width)
    texts = [page.text(one, style) for one in explanations]
    between = ["\n" if text.count("\n") > 1 else "" for text in texts[:-1]]
    screen.say("".join(text + gap for text, gap in zip(texts, [*between, ""], strict=True)))


def _of_pod(options: Options, source: Source, extender: "Extender | None", now: float) -> Answer:
    namespace, name = _which(options)
    try:
        pod = pod_details.pod(source, namespace, name)
    except NotFound:
        raise _no_such_pod(source, namespace, name, options.program) from None
    facts = request.facts(pod, None)
    waits = of_pod.waits(pod)
    events = pod_details.events(source, pod) if waits else []
    quote = pod_details.quote(pod, events)
    if (same := of_pod.alone(pod, facts, quote, now)) is not None:
        return Answer(same)
    by_number = of_pod.by_number(pod, facts)
    reading = vitals.Reading(source, pod.spec.node_name) if pod.spec.node_name else None
    all_gpus = placing.begin(source, facts, options.policy) if waits and extender is None else None
    part = extender.explain(namespace, name) if extender is not None and not by_number else None
    try:
        cluster = snapshot.read(source, now)
    except Forbidden as lacking:
        if part is not None:
            part = limited_rights.redacted(part, (namespace,))
        else:
            part = limited_rights.from_pod(facts, quote, pod_details.last_of_ours(events))
            if by_number:
                part = by_count.marked(part, pod) if waits else by_count.has_node(pod, None)
        told = of_pod.explain(Evidence(pod, part), quote, _doing(reading, pod), now)
        return Answer(told, checked=False, lacking=lacking)
    pod, facts = _newer(cluster, pod, facts)
    if part is not None:
        known = evidence.from_extender(cluster, pod, facts, part)
    else:
        if not by_number:
            unhealthy.mark(cluster, source)
        found = all_gpus.found() if all_gpus is not None else None
        known = of_pod.gather(cluster, pod, facts, options.policy, found)
    return Answer(of_pod.explain(known, quote, _doing(reading, pod), now))


def _doing(reading: vitals.Reading | None, pod: pod_details.Pod) -> FullStatus | None:
    return reading.found().get(pod.spec.node_name or "") if reading is not None else None


def _extender(url: str, screen: Screen) -> "Extender":
    from gpushare.ctl.why import extender_client  # HTTP, which costs time to load

    return extender_client.Extender(url, screen.waiting)


def _newer(cluster: Snapshot, pod: pod_details.Pod, facts: PodFacts) -> tuple[pod_details.Pod, PodFacts]:
    """The pod as it stands among the others: it may have been bound since it was read."""
    listed = next((one for one in cluster.pods if one.metadata.uid == pod.metadata.uid), None)
    if listed is None or listed.spec.node_name == pod.spec.node_name:
        return pod, facts
    status = msgspec.structs.replace(pod.status, phase=listed.status.phase)
    pod = msgspec.structs.replace(pod, metadata=listed.metadata, spec=listed.spec, status=status)
    return pod, request.facts(pod, None)


def _which(options: Options) -> tuple[str, str]:
    """Namespace and name of the pod that is meant."""
    before, _, name = options.pod.rpartition("/")
    namespace = options.namespace or options.default_namespace
    if before and before not in POD_WORDS:
        if options.namespace and options.namespace != before:
            what = f"two namespaces: {before} in {options.pod}, and -n {options.namespace}"
            raise UserError(what, "a pod is in one", f"{options.program} why {name} -n {before}")
        namespace = before
    if not name or "/" in before:
        way = f"{options.program} why NAME -n NAMESPACE; all pods: kubectl get pods -A"
        raise UserError(f'"{options.pod}" is not the name of a pod', "POD is name, namespace/name or pod/name", way)
    return namespace, name


def _no_such_pod(source: Source, namespace: str, name: str, program: str) -> UserError:
    import difflib

    known = pod_details.pods(source, namespace)
    here = sorted({pod.metadata.name for pod in known if _namespace(pod, namespace) == namespace})
    elsewhere = sorted({_namespace(pod, namespace) for pod in known if pod.metadata.name == name})
    close = difflib.get_close_matches(name, here, n=MOST_NAMES, cutoff=0.5)
    why = (
        f"there is {', '.join(close)}"
        if close
        else f"{wording.count(len(here), 'pod')} there, none with a similar name"
    )
    way = f"{program} why {close[0]} -n {namespace}" if close else f"kubectl get pods -n {namespace}"
    if elsewhere:
        why = f"there is one in namespace {', '.join(elsewhere[:MOST_NAMES])}"
        way = f"{program} why {name} -n {elsewhere[0]}"
    return UserError(f'no pod "{name}" in namespace {namespace}', why, way)


def _namespace(pod: objects.Pod, namespace: str) -> str:
    return pod.metadata.namespace or namespace
