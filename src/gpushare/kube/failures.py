"""Failures of a request in the three lines people read: what, why, and the way out.

The API server's own sentence about a missing right names user, verb and resource; ours says the same and how to get it.
"""

import re
import shlex
from enum import Enum

from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError, KubeError, Malformed, Unreachable
from gpushare.obs import errors
from gpushare.obs.errors import UserError

FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)" '
    r'(?:at the cluster scope|in the namespace "(?P<namespace>[^"]*)")'
)
BUDGET = "disruption budget"  # in the API server's message; a busy one answers the same status and names none
READS = ("get", "list", "watch")
VIEW = "gpushare-view"
ACCOUNT = "system:serviceaccount:"


class Outcome(Enum):
    """Of an eviction that failed: the API server refuses one for several reasons, and some failures may come after the
    pod was evicted."""

    GONE = "gone"  # there is no such pod any more
    KEPT = "kept"  # a disruption budget keeps it for now
    UNCLEAR = "unclear"  # it may end all the same
    FAILED = "failed"  # nothing happened


def of_eviction(error: KubeError) -> Outcome:
    """What to believe after `pod_requests.evict` failed."""
    if not isinstance(error, ApiError):
        unsent = isinstance(error, Unreachable) and not error.sent
        return Outcome.FAILED if unsent else Outcome.UNCLEAR
    if error.status in (404, 409):
        return Outcome.GONE
    if error.status == 429 and BUDGET in error.message:
        return Outcome.KEPT
    return Outcome.UNCLEAR if error.status >= 500 else Outcome.FAILED


def needs_help(error: KubeError, *, waits_for_connection: bool) -> bool:
    """Whether the failure stays until somebody does something, such as granting a right.

    A busy or starting API server recovers by itself. One that cannot be reached may be starting, or its address may be
    wrong: `waits_for_connection` takes it for starting.
    """
    if isinstance(error, Unreachable):
        return not waits_for_connection
    return not (isinstance(error, ApiError) and (error.status == 429 or error.status >= 500))


def explain(error: KubeError, access: login.Access) -> UserError:
    """The same failure as what, why and way out."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, Unreachable):
        what = f"the API server does not answer: {access.server}"
        return errors.not_asked(what, f"{error.message} ({_who(access)})", _look(access))
    if isinstance(error, Malformed):
        return errors.not_asked(f"this is not a Kubernetes API server: {access.server}", str(error), _look(access))
    if isinstance(error, ApiError) and error.status == 401:
        what = f"the API server does not accept our credentials: {access.server}"
        user = f'user "{access.user}", ' if access.user else ""
        return access.expired() or errors.not_asked(what, f"{user}{_who(access)} (401)", login.NEW_KUBECONFIG)
    if isinstance(error, ApiError) and error.status == 403 and (missing := FORBIDDEN.search(error.message)):
        return _forbidden(missing)
    return errors.not_asked(f"the API server refuses: {access.server}", f"{error} ({_who(access)})", _look(access))


def _forbidden(missing: re.Match[str]) -> UserError:
    user, verb, resource, namespace = missing["user"], missing["verb"], missing["resource"], missing["namespace"]
    scope, where = "cluster-wide", "" if resource == "nodes" else " in all namespaces"
    if namespace:
        scope, where = f"in namespace {namespace}", f" in namespace {namespace}"
    group = f"group {missing['group']}" if missing["group"] else "core group"
    way = "apply the manifests in deploy/ again: they carry the rights of each component"
    if verb in READS:
        short, subject = user, f"--user={shlex.quote(user)}"
        if user.startswith(ACCOUNT):
            short = user.removeprefix(ACCOUNT)
            subject = f"--serviceaccount={shlex.quote(short)}"
        binding = re.sub("[^a-z0-9.]+", "-", f"{VIEW}-{short.lower()}").strip("-.")
        way = f"kubectl create clusterrolebinding {binding} --clusterrole={VIEW} {subject}"
    return errors.not_asked(
        f"not allowed: {verb} {resource}{where}",
        f'user "{user}" lacks verb {verb} on {resource}, {group}, {scope} (403)',
        way,
    )


def _who(access: login.Access) -> str:
    return f'context "{access.context}" of {access.source}' if access.context else access.source


def _look(access: login.Access) -> str:
    if not access.context:
        return "is the API server up, and does a NetworkPolicy let this pod reach it?"
    return f"kubectl --context {shlex.quote(access.context)} get --raw /readyz, or another context: --context NAME"
