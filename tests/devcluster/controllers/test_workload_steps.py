"""What the Deployment and Job controllers decide, as data in and data out."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gpushare.devcluster.apiserver.kinds import table, workloads
from gpushare.devcluster.controllers import deployments, jobs, owned
from tests.support.api_client import Object

NOW = "2026-01-02T03:04:05Z"


def deployment(replicas: int, **strategy: Any) -> Object:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, "strategy": strategy}
    made: Object = {"metadata": {"name": "web", "uid": "u", "generation": 1}, "spec": spec}
    workloads.read_deployment(made)
    return made


def pods(words: str) -> list[Object]:
    """One pod a word, oldest first: `new` or `old` (template), `+` if it is ready, `-` if it is being deleted."""
    current = deployments.labels(deployment(0))
    made = []
    for i, word in enumerate(words.split()):
        meta: Object = {"name": f"{word}{i}", "creationTimestamp": f"2026-01-01T00:00:{i:02}Z"}
        meta["labels"] = current if word.startswith("new") else {deployments.HASH_LABEL: "other"}
        if word.endswith("-"):
            meta["deletionTimestamp"] = NOW
        ready = word.endswith("+")
        status = {"phase": "Running" if ready else "Pending", "conditions": [{"type": "Ready", "status": str(ready)}]}
        made.append({"metadata": meta, "spec": {"nodeName": "n"} if ready else {}, "status": status})
    return made


@dataclass(frozen=True)
class Roll:
    """A moment of a Deployment with `replicas`: which pods there are, and what is to be done."""

    replicas: int
    there: str
    create: int = 0
    delete: str = ""
    strategy: Object = field(default_factory=dict)


RECREATE: Object = {"type": "Recreate"}
AT_ONCE: Object = {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
ONE_LESS: Object = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
NEITHER: Object = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}
ROLLS = {
    "the first pods": Roll(3, "", create=3),
    "enough": Roll(3, "new+ new+ new"),
    "one was deleted": Roll(3, "new+ new+ new-", create=1),
    "scaled up": Roll(4, "new+ new+", create=2),
    "scaled down: what is not ready goes first, then the youngest": Roll(1, "new+ new new+", delete="new1 new+2"),
    "scaled to nothing": Roll(0, "new+ new", delete="new1 new+0"),
    "a new template: a quarter more, rounded up": Roll(3, "old+ old+ old+", create=1),
    "nothing goes before the new one is ready": Roll(3, "old+ old+ old+ new"),
    "one ready, one goes, and comes": Roll(3, "old+ old+ old+ new+", delete="old+2"),
    "and so on": Roll(3, "old+ old+ old- new+", create=1),
    "five may lack one": Roll(5, "old+ old+ old+ old+ old+", create=2, delete="old+4"),
    "old ones that never got ready go first": Roll(3, "old+ old+ old new+", delete="old2"),
    "the last old one": Roll(3, "old+ new+ new+ new+", delete="old+0"),
    "all at once": Roll(2, "old+ old+", create=2, strategy=AT_ONCE),
    "one by one": Roll(2, "old+ old+", delete="old+1", strategy=ONE_LESS),
    "neither more nor less is no way forward, so one less": Roll(2, "old+ old+", delete="old+1", strategy=NEITHER),
    "recreate: all old ones go": Roll(2, "old+ old+", delete="old+1 old+0", strategy=RECREATE),
    "recreate: none comes beside the old ones": Roll(4, "old+ old+", delete="old+1 old+0", strategy=RECREATE),
    "recreate: not before they are gone": Roll(2, "old- old-", strategy=RECREATE),
    "recreate: then the new ones come": Roll(2, "", create=2, strategy=RECREATE),
}  # fmt: skip


@pytest.mark.parametrize("roll", ROLLS.values(), ids=ROLLS)
def test_the_next_step_of_a_deployment(roll: Roll) -> None:
    steps = deployments.steps(deployment(roll.replicas, **roll.strategy), pods(roll.there))
    assert (steps.create, [pod["metadata"]["name"] for pod in steps.delete]) == (roll.create, roll.delete.split())


def test_a_deployment_tells_what_it_has_and_leaves_out_what_it_has_not() -> None:
    status = deployments.status(deployment(4), pods("new+ new old+ new-"), NOW)
    conditions = status.pop("conditions")
    assert status == {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "unavailableReplicas": 2,
    }
    assert [(found["type"], found["status"], found["lastTransitionTime"]) for found in conditions] == [
        ("Available", "False", NOW),
        ("Progressing", "True", NOW),
    ]


def test_a_condition_keeps_its_time_as_long_as_it_says_the_same() -> None:
    web = deployment(1)
    web["status"] = deployments.status(web, pods("new"), NOW)
    assert deployments.status(web, pods("new"), "later") == web["status"]
    changed = {found["type"]: found for found in deployments.status(web, pods("new+"), "later")["conditions"]}
    assert (changed["Available"]["status"], changed["Available"]["lastTransitionTime"]) == ("True", "later")
    assert changed["Progressing"]["reason"] == "NewReplicaSetAvailable"
    assert changed["Progressing"]["lastTransitionTime"] == NOW, "another reason, but still progressing"


def test_another_template_is_another_hash_and_the_same_one_is_not() -> None:
    other = deployment(3)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "busybox:2"
    assert deployments.labels(deployment(1)) == deployments.labels(deployment(2)) != deployments.labels(other)


def job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    made: Object = {"metadata": {"name": "batch", "uid": "u"}, "spec": {"template": template, **spec}}
    workloads.read_job(made)
    return made


@dataclass(frozen=True)
class Work:
    """A moment of a Job: its spec, the active pods, how many ended well and not, and what comes of it."""

    spec: Object
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    create: int = 0
    delete: int = 0
    end: str | None = None


WORKS = {
    "one pod, unless said otherwise": Work({}, create=1),
    "as many as may run beside each other": Work({"completions": 5, "parallelism": 2}, active=1, create=1),
    "never more than are still wanted": Work({"completions": 5, "parallelism": 4}, succeeded=3, create=2),
    "less may run than do": Work({"completions": 5, "parallelism": 1}, active=3, delete=2),
    "none may run": Work({"completions": 5, "parallelism": 0}, active=1, delete=1),
    "a failed pod is replaced": Work({"backoffLimit": 2}, failed=2, create=1),
    "not more often than allowed": Work({"backoffLimit": 2}, active=1, failed=3, delete=1, end="Failed"),
    "enough have succeeded": Work({"completions": 2, "parallelism": 2}, succeeded=2, end="Complete"),
    "nothing to do is done": Work({"completions": 0}, end="Complete"),
    "a queue: all work": Work({"parallelism": 3}, create=3),
    "a queue: after the first success none is added": Work({"parallelism": 3}, active=1, succeeded=1),
    "a queue: the last one ends it": Work({"parallelism": 3}, succeeded=2, end="Complete"),
}  # fmt: skip


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_the_next_step_of_a_job(work: Work) -> None:
    batch, there = job(**work.spec), pods("new " * work.active)
    end = jobs.outcome(batch, there, work.succeeded, work.failed)
    steps = jobs.steps(batch, there, work.succeeded, end)
    assert (end, steps.create, len(steps.delete)) == (work.end, work.create, work.delete)


def test_restarts_of_containers_count_as_failures_too() -> None:
    batch, (pod,) = job(backoffLimit=2), pods("new+")
    pod["status"]["containerStatuses"] = [{"restartCount": 1}, {"restartCount": 1}]
    assert jobs.outcome(batch, [pod], 0, 0) == jobs.FAILED
    pod["status"]["containerStatuses"] = [{"restartCount": 1}]
    assert jobs.outcome(batch, [pod], 0, 0) is None
    assert jobs.outcome(job(backoffLimit=0), [pod], 0, 0) == jobs.FAILED
    pod["status"]["containerStatuses"] = [{"restartCount": 0}]
    assert jobs.outcome(job(backoffLimit=0), [pod], 0, 0) is None


def test_the_end_of_a_job_is_final() -> None:
    batch = job()
    batch["status"] = jobs.status(batch, [], 1, 0, jobs.COMPLETE, NOW)
    assert (batch["status"]["succeeded"], batch["status"]["completionTime"]) == (1, NOW)
    assert jobs.outcome(batch, [], 0, 99) == jobs.COMPLETE
    assert jobs.status(batch, [], 1, 0, jobs.COMPLETE, "later") == batch["status"]


def test_a_pod_of_an_owner_names_it_and_leaves_the_template_alone() -> None:
    web = deployment(1)
    web["spec"]["template"]["metadata"]["annotations"] = {"a": "b"}
    made = owned.pod(table.BY_RESOURCE["deployments.apps"], web, {"extra": "1"})
    assert made["metadata"]["labels"] == {"app": "web", "extra": "1"}
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert owned.controller(made) == {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u",
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    made["spec"]["containers"][0]["image"] = "changed"
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == "busybox"
