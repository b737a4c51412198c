"""Do gpushare's admission policies, or its webhook, change a pod? For users who may not make a dry run.

`Policy` reads the policies of deploy/admission.yaml and deploy/scheduler-name.yaml and their bindings, the
configuration of deploy/webhook.yaml, and the labels of a namespace, each once. If somebody added other conditions to a
policy, or rules for single resources, the answer is "not known".
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from gpushare.core.facts import names, objects
from gpushare.view import snapshot
from gpushare.view.source import Forbidden, NotFound, Source

NAME = "gpushare-pin"
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/mutatingadmissionpolicies/"
POLICY = f"{POLICIES}{NAME}"
BINDINGS = f"{GROUP}/mutatingadmissionpolicybindings"
WEBHOOK = f"{GROUP}/mutatingwebhookconfigurations/{NAME}"
PINS, NAMES_SCHEDULERS = "pin.gpushare.io", "scheduler-name.gpushare.io"  # of its webhooks
OWN_NAME = "kubernetes.io/metadata.name"  # every namespace has this label
SIZE = "has-a-sensible-number-of-containers"

Labels = Mapping[str, str]


class Expression(objects.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Selector(objects.Struct):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class Scope(objects.Struct):
    """The objects that a policy, or a binding, applies to."""

    namespace_selector: Selector | None = None
    object_selector: Selector | None = None
    resource_rules: list[msgspec.Raw] | None = None
    exclude_resource_rules: list[msgspec.Raw] | None = None


class Condition(objects.Struct):
    name: str = ""


class PolicySpec(objects.Struct):
    match_constraints: Scope = msgspec.field(default_factory=Scope)
    match_conditions: list[Condition] | None = None


class PolicyObject(objects.Struct):
    spec: PolicySpec = msgspec.field(default_factory=PolicySpec)


class BindingSpec(objects.Struct):
    policy_name: str = ""
    match_resources: Scope = msgspec.field(default_factory=Scope)


class Binding(objects.Struct):
    spec: BindingSpec = msgspec.field(default_factory=BindingSpec)


class Bindings(objects.Struct):
    items: list[Binding] | None = None


class Service(objects.Struct):
    path: str = ""


class ClientConfig(objects.Struct):
    service: Service | None = None


class Webhook(Scope):
    name: str = ""
    client_config: ClientConfig = msgspec.field(default_factory=ClientConfig)


class Webhooks(objects.Struct):
    webhooks: list[Webhook] | None = None


class Namespace(objects.Struct):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)


class Rule(NamedTuple):
    """A policy and the webhook that does the same."""

    policy: str
    webhook: str
    conditions: tuple[str, ...]  # of the policy, as shipped


PIN = Rule(NAME, PINS, (SIZE,))
SCHEDULER = Rule("gpushare-scheduler-name", NAMES_SCHEDULERS, (SIZE, "leaves-its-scheduler-open"))


class Policy:
    """`coming`: namespaces that do not exist yet, with their labels."""

    def __init__(self, source: Source, coming: Mapping[str, Labels]) -> None:
        self._source, self._coming = source, coming
        self._policies: dict[str, tuple[PolicySpec, list[Scope]]] = {}
        self._webhooks: list[Webhook] | None = None
        self._labels: dict[str, Labels | None] = {}
        self.lacking: Forbidden | None = None  # what could not be read

    def changes(self, pod: objects.Pod) -> bool | None:
        """Whether one of them pins the pod; None if that is not known."""
        try:
            labels = self._labels_of(pod.metadata.namespace)
            by_webhook = [_includes(one, labels, pod) for one in self._webhooks_named(PIN)]
            if True in by_webhook:
                return True
            by_policy = self._by_policy(PIN, labels, pod)
        except Forbidden as lacking:
            self.lacking = lacking
            return None
        return None if by_policy is False and None in by_webhook else by_policy

    def scheduler(self, pod: objects.Pod) -> str:
        """The scheduler that a pod gets which asks for shares and names none; empty if it gets none, or that is not
        known."""
        try:
            labels = self._labels_of(pod.metadata.namespace)
            for webhook in self._webhooks_named(SCHEDULER):
                if _includes(webhook, labels, pod) and webhook.client_config.service is not None:
                    return webhook.client_config.service.path.rpartition("/")[2]
            return names.GPU_SCHEDULER if self._by_policy(SCHEDULER, labels, pod) else ""
        except Forbidden:
            return ""

    def _by_policy(self, rule: Rule, labels: Labels | None, pod: objects.Pod) -> bool | None:
        if rule.policy not in self._policies:
            self._policies[rule.policy] = self._read(rule.policy)
        spec, bindings = self._policies[rule.policy]
        applies = _includes(spec.match_constraints, labels, pod)
        bound = [_includes(scope, labels, pod) for scope in bindings]
        if applies is False or all(one is False for one in bound):
            return False
        foreign = [one.name for one in spec.match_conditions or () if one.name not in rule.conditions]
        return True if applies and not foreign and True in bound else None

    def _read(self, name: str) -> tuple[PolicySpec, list[Scope]]:
        path = POLICIES + name
        try:
            spec = snapshot.decode(self._source.get(path), PolicyObject, path).spec
            bindings = snapshot.decode(self._source.get(BINDINGS), Bindings, BINDINGS).items or []
        except NotFound:
            return PolicySpec(), []
        spec.match_constraints.resource_rules = None  # pods, as shipped
        return spec, [one.spec.match_resources for one in bindings if one.spec.policy_name == name]

    def _webhooks_named(self, rule: Rule) -> list[Webhook]:
        if self._webhooks is None:
            try:
                self._webhooks = snapshot.decode(self._source.get(WEBHOOK), Webhooks, WEBHOOK).webhooks or []
            except NotFound:
                self._webhooks = []
        return [one for one in self._webhooks if one.name == rule.webhook]

    def _labels_of(self, namespace: str) -> Labels | None:
        """None if it does not exist yet and the file does not say its labels."""
        if namespace not in self._labels:
            path = f"/api/v1/namespaces/{quote(namespace, safe='')}"
            try:
                read = snapshot.decode(self._source.get(path), Namespace, path)
                self._labels[namespace] = read.metadata.labels or {}
            except NotFound:
                coming = self._coming.get(namespace)
                self._labels[namespace] = None if coming is None else {**coming, OWN_NAME: namespace}
        return self._labels[namespace]


def _includes(scope: Scope, namespace: Labels | None, pod: objects.Pod) -> bool | None:
    if scope.resource_rules or scope.exclude_resource_rules:
        return None
    if not _selects(scope.object_selector, pod.metadata.labels or {}):
        return False
    if namespace is None:
        return None if scope.namespace_selector not in (None, Selector()) else True
    return _selects(scope.namespace_selector, namespace)


def _selects(selector: Selector | None, labels: Labels) -> bool:
    """An empty selector selects everything."""
    if selector is None:
        return True
    wanted = (selector.match_labels or {}).items()
    return wanted <= labels.items() and all(_holds(one, labels) for one in selector.match_expressions or ())


def _holds(expression: Expression, labels: Labels) -> bool:
    value, values = labels.get(expression.key), expression.values or []
    match expression.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
    return value is None  # DoesNotExist
