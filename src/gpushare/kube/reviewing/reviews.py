"""The two questions to the API server about somebody who asks us: whose is this token, and may that one do this."""

import shlex
from typing import Any, Final

import msgspec

from gpushare.kube import requests, resources
from gpushare.kube.client import Api

_PREFIX: Final = "system:serviceaccount:"


class User(msgspec.Struct, frozen=True):
    """As a TokenReview tells: all of it counts when the API server is asked what this one may do."""

    username: str = ""
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User | None = None
    audiences: list[str] | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus | None = None


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus | None = None


async def owner(api: Api, token: str, audience: str = "") -> User | None:
    """Whose this token is; None: the API server does not know it. `audience`: it has to be made for us; empty: for the
    API server, as most are."""
    spec = {"token": token, **({"audiences": [audience]} if audience else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    review = await api.fetch(requests.create(resources.TOKEN_REVIEWS, "", body), _TokenReview)
    status = review.status or _TokenStatus()
    # An API server that does not look at audiences names none: then the token may have been made for anybody.
    if not status.authenticated or (audience and audience not in (status.audiences or ())):
        return None
    return status.user


async def may(api: Api, user: User, attributes: dict[str, Any]) -> bool:
    """`attributes`: what is to be done, as a SubjectAccessReview has it."""
    spec: dict[str, Any] = {"user": user.username, "groups": user.groups or [], **attributes}
    spec |= {"uid": user.uid} if user.uid else {}
    spec |= {"extra": user.extra} if user.extra else {}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    review = await api.fetch(requests.create(resources.ACCESS_REVIEWS, "", body), _AccessReview)
    return (review.status or _AccessStatus()).allowed


def subject(user: User) -> str:
    """As an option of `kubectl create clusterrolebinding`."""
    account = user.username.startswith(_PREFIX)
    name = user.username.removeprefix(_PREFIX)
    return shlex.quote(f"--serviceaccount={name}" if account else f"--user={name}")
