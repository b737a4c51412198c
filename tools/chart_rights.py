"""The rights of the operator, for charts/gpushare: its own, to make its parts, and all that it grants to them.

The API server lets nobody grant a right that he does not have. So the rights of the parts are collected from all that
a ClusterPolicy can ask for, and nothing is added: least rights of the parts make least rights of the operator. A role
that Kubernetes has itself is not copied: the operator may bind it. Objects outside of its own namespace it may write
only under the names that its parts have. The rest is in tools/operator_rights.yaml.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from gpushare.operator.seeing import kinds

Object = dict[str, Any]

NAME: Final = "gpushare-operator"
OWN: Final = "{{ .Release.Namespace }}"  # also where the operator's parts go
SYSTEM: Final = "kube-system"
CLUSTER: Final = ""
WHERE: Final = (CLUSTER, OWN, SYSTEM)
WRITES: Final = ("create", "delete", "patch")
RBAC: Final = "rbac.authorization.k8s.io"


class Right(NamedTuple):
    """`url`: of a right that is about no object; the others are empty then. `name` is empty: all of them."""

    group: str
    resource: str
    name: str
    verb: str
    url: str = ""


Rights = dict[str, set[Right]]  # by where they count


def own(file: Path) -> Rights:
    """A list of rules for each of WHERE; the operator's namespace is called `own`, and the whole cluster `cluster`."""
    sections = yaml.safe_load(file.read_text("utf-8"))
    called = {CLUSTER: "cluster", OWN: "own", SYSTEM: SYSTEM}
    return {where: {right for rule in sections[called[where]] for right in of_rule(rule)} for where in WHERE}


def granted(objects: Iterable[Object], namespace: str) -> Rights:
    """By the roles among these objects. `namespace`: the operator's."""
    rights: Rights = {where: set() for where in WHERE}
    for one in objects:
        if one["kind"] in ("ClusterRole", "Role"):
            where = one["metadata"].get("namespace", CLUSTER)
            rights[OWN if where == namespace else where] |= {right for rule in one["rules"] for right in of_rule(rule)}
    return rights


def bound(objects: Iterable[Object], namespace: str) -> Rights:
    """The right to bind the roles that Kubernetes has itself, as these objects do."""
    objects = list(objects)
    made = {(one["kind"], one["metadata"]["name"]) for one in objects}
    rights: Rights = {where: set() for where in WHERE}
    for one in objects:
        reference = one.get("roleRef")
        if reference and (reference["kind"], reference["name"]) not in made:
            where = one["metadata"].get("namespace", CLUSTER)
            plural = f"{reference['kind'].lower()}s"
            rights[OWN if where == namespace else where].add(Right(RBAC, plural, reference["name"], "bind"))
    return rights


def made(objects: Iterable[Object], namespace: str) -> Rights:
    """The right to write these objects by server-side apply, and to delete them, outside of the operator's namespace.

    An apply that creates an object is a patch and a creation with a name.
    """
    rights: Rights = {where: set() for where in WHERE}
    for one in objects:
        where = one["metadata"].get("namespace", CLUSTER)
        if where != namespace:
            resource, name = kinds.BY_NAME[one["kind"]].resource, one["metadata"]["name"]
            rights[where] |= {Right(resource.group, resource.plural, name, verb) for verb in WRITES}
    return rights


def of_rule(rule: Object) -> Iterator[Right]:
    for verb in rule["verbs"]:
        for url in rule.get("nonResourceURLs", ()):
            yield Right("", "", "", verb, url)
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", ("",)):
                    yield Right(group, resource, name, verb)


def together(*some: Rights) -> Rights:
    """Without what is said by a right that reaches further."""
    everywhere = {where: _simple(set().union(*(one[where] for one in some))) for where in WHERE}
    cluster = everywhere[CLUSTER]
    return {
        where: rights if where == CLUSTER else {right for right in rights if not _has(cluster, right)}
        for where, rights in everywhere.items()
    }


def _simple(rights: set[Right]) -> set[Right]:
    return {right for right in rights if not right.name or not _has(rights - {right}, right._replace(name=""))}


def _has(rights: set[Right], right: Right) -> bool:
    return right in rights or right._replace(name="") in rights


def rules(rights: Iterable[Right]) -> list[Object]:
    """As few as can be read well, always in the same order."""
    verbs: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for right in rights:
        verbs[right.url, right.group, right.resource, right.name].add(right.verb)
    names: dict[tuple[str, str, str, tuple[str, ...], bool], set[str]] = defaultdict(set)
    for (url, group, resource, name), allowed in verbs.items():
        names[url, group, resource, tuple(sorted(allowed)), bool(name)].add(name)
    resources: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for (url, group, resource, allowed_verbs, named), called in sorted(names.items()):
        resources[url, group, tuple(sorted(called)) if named else (), allowed_verbs].append(resource)
    return [_rule(*key, resources[key]) for key in resources]


def _rule(url: str, group: str, names: tuple[str, ...], verbs: tuple[str, ...], resources: list[str]) -> Object:
    if url:
        return {"nonResourceURLs": [url], "verbs": list(verbs)}
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": resources, **named, "verbs": list(verbs)}


def template(rights: Rights) -> str:
    """The roles and their bindings, as a template of the chart."""
    return "---\n".join(_document(kind, where, rights[where]) for where in WHERE for kind in ("Role", "RoleBinding"))


def _document(kind: str, where: str, rights: Iterable[Right]) -> str:
    prefix, name = ("" if where else "Cluster"), f"{NAME}-system" if where == SYSTEM else NAME
    namespace = f"  namespace: {where}\n" if where else ""
    head = (
        f"apiVersion: {RBAC}/v1\nkind: {prefix}{kind}\nmetadata:\n  name: {name}\n{namespace}"
        '  labels: {{- include "gpushare.labels" . | nindent 4 }}\n'
    )
    if kind == "Role":
        return head + "rules:\n" + "".join(f"  - {_line(rule)}\n" for rule in rules(rights))
    return (
        f"{head}roleRef:\n  apiGroup: {RBAC}\n  kind: {prefix}Role\n  name: {name}\n"
        f"subjects:\n  - kind: ServiceAccount\n    name: {NAME}\n    namespace: {OWN}\n"
    )


def _line(rule: Object) -> str:
    written = yaml.safe_dump(rule, default_flow_style=None, sort_keys=False, width=110)
    return written.rstrip("\n").replace("\n", "\n    ").replace("'{{", "{{").replace("}}'", "}}")
