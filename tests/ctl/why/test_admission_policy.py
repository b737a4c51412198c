"""What is read of gpushare's admission policy where there is no dry run: which pods it changes, if that is known."""

import copy
import json
from typing import Any

import pytest

from gpushare.core.facts.objects import Metadata, Pod
from gpushare.view.source import Forbidden, NotFound
from gpushare.view.why.files import admission_policy
from gpushare.view.why.files.admission_policy import Policy
from tests.ctl.why.cluster import SHIPPED

Object = dict[str, Any]
LABELS = {"gpushare.io/pin": "direct", "team": "a"}
POD = Pod(Metadata(name="p", namespace="team-a", labels={"app": "web"}))


class Objects:
    """A source with these objects by path; None: that may not be read."""

    def __init__(self, objects: dict[str, Object | None]) -> None:
        self.objects, self.asked = objects, list[str]()

    def get(self, path: str) -> bytes:
        self.asked.append(path)
        if path not in self.objects:
            raise NotFound("", "", "")
        if self.objects[path] is None:
            raise Forbidden("", "", "")
        return json.dumps(self.objects[path]).encode()


def source(*scopes: Object, spec: Object | None = None, labels: Object | None = None) -> Objects:
    """The shipped policy, with what `spec` changes in it, and a binding for each scope."""
    shipped, binding = copy.deepcopy(SHIPPED)
    shipped["spec"] |= spec or {}
    bindings = [{**binding, "spec": {**binding["spec"], "matchResources": scope}} for scope in scopes]
    namespace = {"metadata": {"labels": LABELS if labels is None else labels}}
    return Objects({
        admission_policy.POLICY: shipped,
        admission_policy.BINDINGS: {"items": [{"spec": {"policyName": "another"}}, *bindings]},
        "/api/v1/namespaces/team-a": namespace,
    })  # fmt: skip


def namespaces(**selector: Any) -> Object:
    return {"namespaceSelector": selector}


def expression(operator: str, *values: str, key: str = "team") -> Object:
    return namespaces(matchExpressions=[{"key": key, "operator": operator, "values": list(values)}])


RULES = [{"apiGroups": [""], "resources": ["pods"]}]
SCOPES: list[tuple[list[Object], bool | None]] = [
    ([{}], True),
    ([], False),
    ([namespaces()], True),
    ([namespaces(matchLabels={"gpushare.io/pin": "direct"})], True),
    ([namespaces(matchLabels={"gpushare.io/pin": "plugin"})], False),
    ([namespaces(matchLabels={"other": ""})], False),
    ([namespaces(matchLabels={"other": ""}), {}], True),
    ([expression("In", "a", "b")], True),
    ([expression("In", "b")], False),
    ([expression("NotIn", "b")], True),
    ([expression("NotIn", "a")], False),
    ([expression("NotIn", "a", key="none")], True),
    ([expression("Exists")], True),
    ([expression("Exists", key="none")], False),
    ([expression("DoesNotExist")], False),
    ([expression("DoesNotExist", key="none")], True),
    ([{"objectSelector": {"matchLabels": {"app": "web"}}}], True),
    ([{"objectSelector": {"matchLabels": {"app": "db"}}}], False),
    ([{"resourceRules": RULES}], None),
    ([{"excludeResourceRules": RULES}], None),
    ([{"excludeResourceRules": RULES}, {}], True),
    ([{"excludeResourceRules": RULES}, namespaces(matchLabels={"other": ""})], None),
]


@pytest.mark.parametrize(("scopes", "changed"), SCOPES)
def test_bindings_say_which_pods_are_meant(scopes: list[Object], changed: bool | None) -> None:
    assert Policy(source(*scopes), {}).changes(POD) is changed


def test_the_policys_own_words_count_as_well() -> None:
    constraints = SHIPPED[0]["spec"]["matchConstraints"]
    nobody = {**constraints, **namespaces(matchLabels={"other": ""})}
    assert Policy(source({}, spec={"matchConstraints": nobody}), {}).changes(POD) is False
    foreign = [*SHIPPED[0]["spec"]["matchConditions"], {"name": "of-ours", "expression": "true"}]
    assert Policy(source({}, spec={"matchConditions": foreign}), {}).changes(POD) is None


def test_where_there_is_no_policy_no_pod_is_changed() -> None:
    assert Policy(Objects({}), {}).changes(POD) is False


@pytest.mark.parametrize("path", [admission_policy.POLICY, admission_policy.BINDINGS, "/api/v1/namespaces/team-a"])
def test_what_may_not_be_read_leaves_it_unknown(path: str) -> None:
    found = source({})
    found.objects[path] = None
    asked = Policy(found, {})
    assert asked.changes(POD) is None
    assert asked.lacking is not None


def test_a_namespace_that_is_not_there_yet_has_the_labels_it_will_get() -> None:
    limited, own = namespaces(matchLabels=LABELS), namespaces(matchLabels={admission_policy.OWN_NAME: "team-a"})
    for scope, coming, changed in (
        (limited, {"team-a": LABELS}, True),
        (limited, {"team-a": {}}, False),
        (limited, {}, None),
        (own, {"team-a": {}}, True),
        ({}, {}, True),
        (namespaces(), {}, True),
    ):
        found = source(scope)
        del found.objects["/api/v1/namespaces/team-a"]
        assert Policy(found, coming).changes(POD) is changed


def test_everything_is_read_once() -> None:
    found = source({})
    asked = Policy(found, {})
    for _ in range(3):
        asked.changes(POD)
    assert len(found.asked) == len(set(found.asked)) == 4


@pytest.mark.parametrize(
    ("selector", "changes"),
    [({}, True), ({"matchLabels": {"team": "a"}}, True), ({"matchLabels": {"team": "b"}}, False)],
)
def test_the_webhook_changes_pods_as_the_policy_does(selector: Object, changes: bool) -> None:
    webhooks = [{"name": admission_policy.PINS, "namespaceSelector": selector}, {"name": "unasked.gpushare.io"}]
    found = source()
    found.objects[admission_policy.WEBHOOK] = {"webhooks": webhooks}
    assert Policy(found, {}).changes(POD) is changes


def test_a_configuration_that_is_not_filled_yet_changes_nothing() -> None:
    found = source()
    found.objects[admission_policy.WEBHOOK] = {"metadata": {}}
    assert Policy(found, {}).changes(POD) is False
