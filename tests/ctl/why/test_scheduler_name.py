"""`why -f` where admission names the scheduler: who will place the pod, by a dry run and without one."""

import pytest

from gpushare.core.facts.objects import Metadata, Pod
from gpushare.view.why.files import admission_policy
from gpushare.view.why.files.admission_policy import Policy
from tests.ctl.why.cluster import OF_SCHEDULERS, Cluster, ask
from tests.ctl.why.test_admission_policy import Objects

POD = """\
kind: Pod
metadata: {{name: llm, annotations: {{nodeName: {node}}}}}
spec: {{schedulerName: {scheduler}, containers: [{{name: main, image: x, resources: {{limits: {{{asks}}}}}}}]}}
"""
NODES = {"gpu-a": {"gpus": [8000]}, "gpu-b": {"gpus": [8000]}}
MEMORY = "aliyun.com/gpu-mem: 500"
SECOND = "gpu-scheduler"
NO_RIGHT = "POST /api/v1/namespaces/default/pods"
PLACED = f"note: llm will be placed by {SECOND}: admission gives it this schedulerName.\n"


def asked(*hidden: str, second: str = SECOND, scheduler: str = '""', asks: str = MEMORY) -> tuple[str, str]:
    cluster = Cluster(NODES, [])
    cluster.scheduler, cluster.hidden = second, hidden
    text = POD.format(scheduler=scheduler, asks=asks, node="gpu-b")
    answer = ask(cluster, filename="-", stdin=text)
    return answer.out.partition("\n")[0], answer.err


@pytest.mark.parametrize("hidden", [(), (NO_RIGHT,)], ids=["by a dry run", "without the right to make one"])
def test_a_pod_that_names_no_scheduler_is_told_who_will_place_it(hidden: tuple[str, ...]) -> None:
    for written in ('""', "default-scheduler"):
        out, err = asked(*hidden, scheduler=written)
        assert PLACED in err
        assert "gpu-b" in out, "the annotation nodeName is for pods of this scheduler"
    out, err = asked(*hidden, second="")
    assert "will be placed by" not in err
    assert "gpu-a" in out


@pytest.mark.parametrize("hidden", [(), (NO_RIGHT,)], ids=["by a dry run", "without the right to make one"])
@pytest.mark.parametrize("scheduler", ["theirs", SECOND])
def test_a_pod_that_names_its_scheduler_keeps_it_and_nothing_is_said(hidden: tuple[str, ...], scheduler: str) -> None:
    assert "will be placed by" not in asked(*hidden, scheduler=scheduler)[1]


def test_what_may_not_be_read_is_not_guessed() -> None:
    assert "will be placed by" not in asked(NO_RIGHT, admission_policy.GROUP)[1]


def test_the_webhook_says_in_its_path_which_scheduler_it_gives() -> None:
    service = {"service": {"path": "/scheduler-name/other"}}
    webhooks = [{"name": admission_policy.NAMES_SCHEDULERS, "clientConfig": service}, {"name": "pin.gpushare.io"}]
    namespace = "/api/v1/namespaces/team-a"
    found = Objects({admission_policy.WEBHOOK: {"webhooks": webhooks}, namespace: {"metadata": {}}})
    pod = Pod(Metadata(name="p", namespace="team-a"))
    assert Policy(found, {}).scheduler(pod) == "other"
    assert Policy(Objects({namespace: {"metadata": {}}}), {}).scheduler(pod) == ""


def test_conditions_of_the_policy_as_shipped_are_known() -> None:
    conditions = OF_SCHEDULERS[0]["spec"]["matchConditions"]
    assert tuple(one["name"] for one in conditions) == admission_policy.SCHEDULER.conditions
    assert OF_SCHEDULERS[0]["metadata"]["name"] == admission_policy.SCHEDULER.policy
