"""Requests as another user or service account, with only the rights that the test gives it.

No token is needed: the admin impersonates the user, and authorization, admission and audit log see that user.
"""

import contextlib
import copy
from collections.abc import AsyncIterator

import aiohttp

from tests.e2e.harness.cluster import ADMIN
from tests.e2e.harness.world import World
from tests.support.api_client import Api
from tests.support.objects import Object

RBAC = "rbac.authorization.k8s.io"


@contextlib.asynccontextmanager
async def acting_as(world: World, user: str, on_node: str = "") -> AsyncIterator[Api]:
    """A client as this user, in the namespace of the world. `on_node`: as if its token were that of a pod there."""
    headers = {"Authorization": f"Bearer {world.cluster.tokens[ADMIN]}", "Impersonate-User": user}
    if on_node:
        headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = on_node
    async with aiohttp.ClientSession(headers=headers) as session:
        person = copy.copy(world.api)
        person.session = session
        yield person


async def allow(world: World, user: str, *resources: str) -> None:
    """Allows the user everything with these resources, in the namespace of the world."""
    metadata = {"name": user, "namespace": world.api.namespace}
    rule = {"apiGroups": [""], "resources": list(resources), "verbs": ["*"]}
    role: Object = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    binding: Object = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    await world.cluster.apply(role, binding)
