"""The three lines that people read."""

import pytest

from gpushare.kube import failures
from gpushare.kube.auth.login import IN_POD, Access
from gpushare.kube.errors import ApiError, KubeError, Malformed, NoAccess, Unreachable
from gpushare.obs.errors import CLUSTER_NOT_ASKED

ACCESS = Access("https://10.0.0.1:6443", context="prod", user="dev", source="~/.kube/config")


def lines(error: KubeError, access: Access = ACCESS) -> tuple[str, str, str]:
    told = failures.explain(error, access)
    return told.what, told.why, told.way


def forbidden(user: str, verb: str, resource: str, group: str, where: str) -> ApiError:
    cannot = f'User "{user}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
    return ApiError(403, "Forbidden", f"{resource} is forbidden: {cannot}")


def test_no_answer_names_server_cause_and_context() -> None:
    assert lines(Unreachable("connection refused", sent=False)) == (
        "the API server does not answer: https://10.0.0.1:6443",
        'connection refused (context "prod" of ~/.kube/config)',
        "kubectl --context prod get --raw /readyz, or another context: --context NAME",
    )


def test_inside_a_pod_there_is_no_context_to_name() -> None:
    _, why, way = lines(Unreachable("no answer within 10 s", sent=True), Access("https://10.96.0.1:443", source=IN_POD))
    assert why == "no answer within 10 s (the pod's service account)"
    assert "NetworkPolicy" in way


def test_a_missing_right_says_who_lacks_what_and_how_to_get_it() -> None:
    assert lines(forbidden("dev", "list", "pods", "", "at the cluster scope")) == (
        "not allowed: list pods in all namespaces",
        'user "dev" lacks verb list on pods, core group, cluster-wide (403)',
        "kubectl create clusterrolebinding gpushare-view-dev --clusterrole=gpushare-view --user=dev",
    )


@pytest.mark.parametrize(
    ("error", "what", "way"),
    [
        (
            forbidden("system:serviceaccount:ml:bot", "list", "nodes", "", "at the cluster scope"),
            "not allowed: list nodes",
            "gpushare-view-ml-bot --clusterrole=gpushare-view --serviceaccount=ml:bot",
        ),
        (
            forbidden("Ann O'Neil", "get", "pods", "", 'in the namespace "ml"'),
            "not allowed: get pods in namespace ml",
            "gpushare-view-ann-o-neil --clusterrole=gpushare-view --user='Ann O'\"'\"'Neil'",
        ),
        (
            forbidden("dev", "create", "pods/binding", "", 'in the namespace "ml"'),
            "not allowed: create pods/binding in namespace ml",
            "apply the manifests in deploy/ again",
        ),
    ],
)
def test_other_rights_and_users(error: ApiError, what: str, way: str) -> None:
    told = lines(error)
    assert told[0] == what
    assert way in told[2]


def test_refused_credentials_name_the_user() -> None:
    assert lines(ApiError(401, "Unauthorized", "Unauthorized")) == (
        "the API server does not accept our credentials: https://10.0.0.1:6443",
        'user "dev", context "prod" of ~/.kube/config (401)',
        "get a new kubeconfig from your admin",
    )


def test_what_is_known_to_be_explained_stays() -> None:
    error = NoAccess("what", "why", "way")
    assert failures.explain(error, ACCESS) is error
    assert str(error) == "what: why (try: way)"


def test_something_else_than_an_api_server_is_said_to_be_so() -> None:
    assert lines(Malformed("/version: not JSON"))[0] == "this is not a Kubernetes API server: https://10.0.0.1:6443"


def test_any_other_refusal_is_quoted() -> None:
    error = ApiError(500, "InternalError", "etcd is on fire")
    assert lines(error)[1] == '500 InternalError: etcd is on fire (context "prod" of ~/.kube/config)'


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("connection refused", sent=False),
        Malformed("/version: not JSON"),
        ApiError(401, "Unauthorized", "Unauthorized"),
        ApiError(500, "InternalError", "etcd is on fire"),
        NoAccess("what", "why", "way"),
    ],
)
def test_every_failure_ends_the_program_as_a_cluster_that_could_not_be_asked(error: KubeError) -> None:
    assert failures.explain(error, ACCESS).code == CLUSTER_NOT_ASKED


@pytest.mark.parametrize(
    ("error", "needs_help"),
    [
        (ApiError(403, "Forbidden", ""), True),
        (ApiError(401, "Unauthorized", ""), True),
        (Malformed("/version: not JSON"), True),
        (NoAccess("what", "why", "way"), True),
        (ApiError(429, "TooManyRequests", ""), False),
        (ApiError(503, "ServiceUnavailable", ""), False),
    ],
)
def test_a_busy_api_server_recovers_by_itself_and_a_missing_right_does_not(error: KubeError, needs_help: bool) -> None:
    for waits in (True, False):
        assert failures.needs_help(error, waits_for_connection=waits) is needs_help


def test_an_api_server_out_of_reach_is_starting_or_at_another_address() -> None:
    error = Unreachable("connection refused", sent=False)
    assert not failures.needs_help(error, waits_for_connection=True)
    assert failures.needs_help(error, waits_for_connection=False)
