"""Policy ConfigMaps that come, change and go: what is in force, and what their editors are told."""

import pytest

from gpushare.core.facts import objects
from gpushare.core.facts.scoring.settings import KETI_LONG, KETI_SHORT, NEUTRAL, Settings
from gpushare.core.ledger.ledger import Ledger
from gpushare.extender.metrics import Metrics
from gpushare.extender.policy.maps import LONGEST, PolicyMaps
from tests.extender.policy.book import Book, Told

SHORT, LONG = "gpu-scheduler-configmap", "gpu-scheduler-policy"
IN_FORCE = (
    "in force: node-gpu-score-weight=0.3:0.7, nvlink-weight-percentage=0, gpu-allocate-prefer={prefer}, "
    "node-reservation-permit=false, pod-re-schedule-permit=true, avoid-nvlink-one-gpu=false, "
    "multi-node-allocation-permit=false, non-gpu-node-prefer=false, multi-gpu-node-prefer=false, "
    "least-score-node-prefer=false, avoid-high-score-node=false"
)


class Stage:
    def __init__(self) -> None:
        self.applied: list[Settings] = []
        self.book, self.metrics = Book(), Metrics(Ledger())
        self.maps = PolicyMaps(self.applied.append, self.book, self.metrics)  # type: ignore[arg-type]

    def shows(self, name: str, uid: str = "u1", **data: str) -> None:
        written = {key.replace("_", "-"): value for key, value in data.items()}
        self.maps.upsert(objects.ConfigMap(objects.Metadata(name=name, namespace="gpu", uid=uid), written or None))

    def gone(self, name: str) -> None:
        self.maps.remove(objects.ConfigMap(objects.Metadata(name=name)))

    def refused(self) -> float:
        return self.metrics.registry.get_sample_value("gpushare_policy_refused_total") or 0.0

    def reasons(self) -> list[tuple[str, str]]:
        return [(about, reason) for about, _, reason, _ in self.book.take()]


@pytest.fixture
def stage() -> Stage:
    """After the first list, which was empty."""
    made = Stage()
    made.maps.relisted(set())
    made.applied.clear()
    return made


def test_the_first_list_is_applied_as_a_whole() -> None:
    made = Stage()
    made.shows(SHORT, pod_re_schedule_permit="false")
    made.shows(LONG)
    made.shows("kube-root-ca.crt", ca="x")
    assert (made.applied, made.book.events) == ([], [])
    made.maps.relisted({SHORT, LONG, "kube-root-ca.crt"})
    (settings,) = made.applied
    assert (settings.gpu_weight, settings.reschedules) == (KETI_LONG.gpu_weight, False)
    assert made.reasons() == [(f"ConfigMap/{SHORT}", "PolicyApplied"), (f"ConfigMap/{LONG}", "PolicyApplied")]


def test_without_configmaps_nothing_is_asked_for_and_nobody_is_told() -> None:
    made = Stage()
    made.maps.relisted(set())
    assert (made.applied, made.book.events) == ([NEUTRAL], [])


def test_an_edit_is_in_force_at_once_and_its_event_says_what_is(stage: Stage) -> None:
    stage.shows(SHORT)
    stage.book.take()
    stage.shows(SHORT, gpu_allocate_prefer="binpack")
    assert [settings.prefer for settings in stage.applied] == ["spread", "binpack"]
    expected: Told = (f"ConfigMap/{SHORT}", "Normal", "PolicyApplied", IN_FORCE.format(prefer="binpack"))
    assert stage.book.take() == [expected]


def test_a_bad_edit_changes_nothing_and_says_why(stage: Stage) -> None:
    stage.shows(SHORT)
    stage.book.take()
    stage.shows(SHORT, gpu_allocate_prefer="binpak", pod_re_schedule_permit="false")
    assert stage.applied == [KETI_SHORT]
    assert stage.maps.settings == KETI_SHORT
    assert stage.refused() == 1
    text = 'gpu-allocate-prefer is "binpak", and may be spread or binpack. Nothing was changed; '
    assert stage.book.take() == [
        (f"ConfigMap/{SHORT}", "Warning", "PolicyRefused", text + IN_FORCE.format(prefer="spread"))
    ]


def test_a_good_edit_beside_a_bad_one_is_not_applied_until_that_is_mended(stage: Stage) -> None:
    stage.shows(SHORT, colour="red")
    stage.shows(LONG, gpu_allocate_prefer="binpack")
    assert (stage.applied, stage.refused()) == ([], 2)
    *_, good, bad = stage.book.take()
    text = f"{SHORT} has to be mended first. Nothing was changed; in force: "
    assert good[:3] == (f"ConfigMap/{LONG}", "Warning", "PolicyRefused")
    assert (good[3][: len(text)], bad[0]) == (text, f"ConfigMap/{SHORT}")
    stage.shows(SHORT)
    assert [settings.prefer for settings in stage.applied] == ["binpack"]


def test_what_is_deleted_counts_no_longer(stage: Stage) -> None:
    stage.shows(SHORT, uid="s")
    stage.shows(LONG, uid="l")
    stage.book.take()
    stage.gone(LONG)
    assert stage.applied[-1] == KETI_SHORT
    assert stage.reasons() == [(f"ConfigMap/{SHORT}", "PolicyApplied")]
    stage.gone(SHORT)
    assert stage.applied[-1] == NEUTRAL
    assert stage.book.events == []


def test_deleting_a_bad_one_brings_the_other_into_force(stage: Stage) -> None:
    stage.shows(SHORT)
    stage.shows(LONG, colour="red")
    stage.gone(LONG)
    assert stage.applied == [KETI_SHORT, KETI_SHORT]


def test_a_list_that_lacks_one_is_as_if_it_was_deleted(stage: Stage) -> None:
    stage.shows(SHORT)
    stage.maps.relisted({"other"})
    assert stage.applied[-1] == NEUTRAL


def test_a_list_or_an_event_that_brings_nothing_new_says_nothing(stage: Stage) -> None:
    stage.shows(SHORT)
    stage.book.take()
    stage.shows(SHORT)
    stage.maps.relisted({SHORT})
    stage.gone("other")
    assert (len(stage.applied), stage.book.events) == (1, [])


def test_an_event_of_a_new_object_of_that_name_is_written_on_the_new_one(stage: Stage) -> None:
    stage.shows(SHORT, uid="old")
    stage.shows(SHORT, uid="new")
    assert len(stage.book.take()) == 2


def test_one_pod_on_several_nodes_is_said_to_be_impossible(stage: Stage) -> None:
    stage.shows(LONG, multi_node_allocation_permit="true")
    about, kind, reason, text = stage.book.take()[-1]
    assert (about, kind, reason) == (f"ConfigMap/{LONG}", "Warning", "PolicyNotPossible")
    assert text == "multi-node-allocation-permit has no effect: a pod runs on one node"


def test_thousands_of_bad_keys_are_one_event_of_bounded_length(stage: Stage) -> None:
    stage.shows(LONG, **{f"{'k' * 200}{i}": "v" * 10_000 for i in range(10_000)})
    ((_, _, reason, text),) = stage.book.take()
    assert reason == "PolicyRefused"
    assert "9993 more keys are wrong. Nothing was changed" in text
    assert len(text) < 2 * LONGEST
