"""The pods of scheduler_name_pods.yaml through the stand-in API server and through the webhook's answers: the same
comes out. `tests/e2e/test_scheduler_name.py` sends them to a real API server, with the policy and with the webhook."""

import base64

import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.webhook import reviews
from tests.contracts.api import scheduler_table, test_admission_table
from tests.contracts.api.admission_table import Mode
from tests.contracts.api.scheduler_table import MANY, TABLE
from tests.support import api_client
from tests.support.api_client import Object

ROWS = [*TABLE, *MANY]


def answered(pod: Object) -> Object:
    """By the webhook alone."""
    review = msgspec.json.encode({"request": {"uid": "u", "resource": {"resource": "pods"}, "object": pod}})
    response = msgspec.json.decode(reviews.assigned(review, names.GPU_SCHEDULER))["response"]
    assert response["allowed"] is True
    return test_admission_table.patched(pod, msgspec.json.decode(base64.b64decode(response.get("patch", "W10="))))


@pytest.mark.parametrize("nvidia", [True, False])
@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
async def test_webhook_and_stand_in_give_a_pod_the_same_scheduler(row: Object, nvidia: bool) -> None:
    async with (
        ApiServer(pin_directly=True, pin_nvidia=nvidia, scheduler=names.GPU_SCHEDULER) as server,
        api_client.connect(server.url) as api,
    ):
        await api.create("/api/v1/namespaces", {"metadata": {"name": "team", "labels": row.get("labels", {})}})
        made = await api.create("/api/v1/namespaces/team/pods", scheduler_table.pod(row))
    wanted = scheduler_table.expected(row, nvidia=nvidia)
    assert made["spec"]["schedulerName"] == wanted
    pinned = test_admission_table.answered(scheduler_table.pod(row), row, Mode(nvidia=nvidia))
    assert answered(pinned)["spec"].get("schedulerName", "default-scheduler") == wanted
    assert answered(made) == made, "changed twice"
