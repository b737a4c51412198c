"""The rights that objects grant. Whoever applies them must hold all of these: the API server lets nobody grant more."""

import itertools
from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]
Right = tuple[str, str, str, str]  # group, resource, name of an object ("" is all), verb

ROLES = ("ClusterRole", "Role")
BINDINGS = ("ClusterRoleBinding", "RoleBinding")


def granted(objects: Iterable[Object]) -> set[Right]:
    """By their roles. A path such as /metrics stands in the place of a resource."""
    rules = [rule for one in objects if one["kind"] in ROLES for rule in one["rules"]]
    return {right for rule in rules for right in of_rule(rule)}


def of_rule(rule: Object) -> set[Right]:
    paths = {("", path, "", verb) for path in rule.get("nonResourceURLs", []) for verb in rule["verbs"]}
    named = rule.get("resourceNames") or [""]
    resources = itertools.product(rule.get("apiGroups", []), rule.get("resources", []), named, rule["verbs"])
    return paths | set(resources)


def bound_elsewhere(objects: Iterable[Object]) -> set[tuple[str, str]]:
    """Kind and name of roles that are given to somebody, and are not among the objects: that needs the verb bind."""
    known = list(objects)
    made = {(one["kind"], one["metadata"]["name"]) for one in known if one["kind"] in ROLES}
    refs = [one["roleRef"] for one in known if one["kind"] in BINDINGS]
    return {(ref["kind"], ref["name"]) for ref in refs} - made
