"""The labels for Pod Security Admission: applied as ours, and never over what somebody else wrote."""

import pytest

from gpushare.core.facts import names
from gpushare.kube.errors import ApiError
from gpushare.operator.applying import pod_security
from tests.support import scripted_api

NAMESPACE = "gpu-operator"
APPLY = f"PATCH /api/v1/namespaces/{NAMESPACE}"


@pytest.mark.parametrize(("allowed", "labels"), [(True, pod_security.LABELS), (False, {})])
async def test_the_labels_are_applied_by_our_name_and_without_force(allowed: bool, labels: dict[str, str]) -> None:
    """An apply without them takes ours back."""
    async with scripted_api.serve_api() as (server, api):
        server.on(APPLY, scripted_api.answer({}))
        await pod_security.keep(api, NAMESPACE, allowed=allowed)
        (asked,) = server.asked
        assert asked.query == {"fieldManager": names.OPERATOR_MANAGER}
        assert asked.body["metadata"] == {"name": NAMESPACE, "labels": labels}


async def test_a_label_of_somebody_else_is_left_and_said(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_api.serve_api() as (server, api):
        server.on(APPLY, scripted_api.refuse(409, "Conflict", "conflict with kubectl-label"))
        await pod_security.keep(api, NAMESPACE, allowed=True)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.fields["way"].startswith(f"kubectl label --overwrite namespace {NAMESPACE} ")  # type: ignore[attr-defined]


async def test_a_missing_right_is_an_error() -> None:
    async with scripted_api.serve_api() as (server, api):
        server.on(APPLY, scripted_api.refuse(403, "Forbidden", "may not"))
        with pytest.raises(ApiError):
            await pod_security.keep(api, NAMESPACE, allowed=True)
