"""Requests to the API server as data, for any kind of object: read, create, apply, patch, replace and delete.

Nothing is sent here: `client.Api` sends them. Lists and watches are made by the client itself, because they consist of
several requests. The names are those of RBAC's verbs where there is one; an apply needs the verb patch.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpushare.kube.resources import Resource

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"  # lists are merged by key; not for custom resources
APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML

Query = Mapping[str, str]


class Request(NamedTuple):
    method: str
    path: str
    query: Query | None = None
    body: object = None
    content_type: str = JSON


def read(resource: Resource, namespace: str, name: str) -> Request:
    return Request("GET", resource.item(namespace, name))


def create(resource: Resource, namespace: str, body: object) -> Request:
    return Request("POST", resource.one_namespace(namespace), body=body)


def apply(resource: Resource, namespace: str, name: str, body: object, *, manager: str, force: bool = False) -> Request:
    """Server-side apply: creates the object, or sets exactly these fields of it, which `manager` owns from then on.

    `body` has apiVersion and kind. 409: another manager owns one of the fields and sets it to something else; `force`
    takes it over.
    """
    query = {"fieldManager": manager, **({"force": "true"} if force else {})}
    return Request("PATCH", resource.item(namespace, name), query, body, APPLY)


def patch(resource: Resource, namespace: str, name: str, body: object, *, content_type: str = MERGE) -> Request:
    return Request("PATCH", resource.item(namespace, name), None, body, content_type)


def patch_status(
    resource: Resource, namespace: str, name: str, status: object, *, content_type: str = MERGE, uid: str = ""
) -> Request:
    """`uid`: 409 or 422 if the name belongs to another object by now. The status of a custom resource ignores it."""
    body = {"metadata": {"uid": uid}, "status": status} if uid else {"status": status}
    return Request("PATCH", resource.item(namespace, name, "status"), None, body, content_type)


def replace(resource: Resource, namespace: str, name: str, body: object) -> Request:
    """`body`: the whole object. 409: its resource version is not the newest one."""
    return Request("PUT", resource.item(namespace, name), body=body)


def replace_status(resource: Resource, namespace: str, name: str, body: object) -> Request:
    """`body`: the object, of which only the status counts. 409: its resource version is not the newest one."""
    return Request("PUT", resource.item(namespace, name, "status"), body=body)


def delete(resource: Resource, namespace: str, name: str, *, uid: str = "") -> Request:
    """`uid`: 409 if the name belongs to another object by now."""
    body = {"preconditions": {"uid": uid}} if uid else None
    return Request("DELETE", resource.item(namespace, name), body=body)
