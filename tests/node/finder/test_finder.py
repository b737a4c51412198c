"""The finder keeps the labels of its node, itself or through node-feature-discovery, whatever happens to them."""

from collections.abc import AsyncIterator

import pytest

from gpushare.core.facts import names
from gpushare.kube import reflector
from gpushare.kube.errors import ApiError
from gpushare.kube.labels import features, writer
from gpushare.node.finder.app import Config, Finder
from gpushare.obs.errors import UserError
from tests.support import label_api
from tests.support.label_api import FINDER_FEATURE, NAMESPACE, NODE, LabelApi
from tests.support.sysfs import Sysfs
from tests.support.tasks import beside
from tests.support.wait import eventually

ANY, CONTROLLER_3D, CONTROLLER_VGA = names.PCI_LABELS
FOUND = {ANY: "true", CONTROLLER_3D: "true"}


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "MISSING_DELAY", 0.01)
    monkeypatch.setattr(writer, "PAUSE", 0.01)


@pytest.fixture
async def api(sysfs: Sysfs) -> LabelApi:
    return LabelApi()


@pytest.fixture
async def finder(api: LabelApi, sysfs: Sysfs) -> AsyncIterator[Finder]:
    """On a node with one GPU."""
    sysfs.add("0x030200")
    config = Config(NODE, str(sysfs.root), namespace=NAMESPACE, pod="finder-1")
    made = Finder(config, api, look_seconds=0.01)
    async with beside(made.run()):
        yield made


async def labelled(api: LabelApi, labels: dict[str, str]) -> None:
    await eventually(lambda: api.labels == labels, f"labels {labels}")


async def test_a_gpu_is_labelled_with_one_write(api: LabelApi, finder: Finder) -> None:
    await labelled(api, FOUND)
    await eventually(lambda: not finder.not_ready())
    assert label_api.managers(api) == [names.FINDER_MANAGER]


async def test_gpus_come_and_go(api: LabelApi, finder: Finder, sysfs: Sysfs) -> None:
    await labelled(api, FOUND)
    address = sysfs.add("0x030000")
    await labelled(api, FOUND | {CONTROLLER_VGA: "true"})
    sysfs.remove(address)
    await labelled(api, FOUND)


async def test_a_label_of_gpus_that_are_gone_is_removed_also_by_the_next_process(sysfs: Sysfs) -> None:
    api = LabelApi()
    api.labels.update(FOUND | {"zone": "a"})
    api.owned[names.FINDER_MANAGER] = set(FOUND)
    async with beside(Finder(Config(NODE, str(sysfs.root)), api).run()):
        await labelled(api, {"zone": "a"})


async def test_a_label_that_was_removed_or_changed_comes_back(api: LabelApi, finder: Finder) -> None:
    await labelled(api, FOUND)
    api.label(ANY, None)
    await labelled(api, FOUND)
    api.label(CONTROLLER_3D, "false")
    await labelled(api, FOUND)
    api.new_node()
    await labelled(api, FOUND)


async def test_other_changes_of_the_node_cause_no_write(api: LabelApi, finder: Finder) -> None:
    await labelled(api, FOUND)
    for turn in range(20):
        api.label("heartbeat", str(turn))
    await eventually(
        lambda: (finder.node.node is not None) and (finder.node.node.metadata.labels or {}).get("heartbeat")
    )
    api.label(ANY, None)
    await eventually(lambda: ANY in api.labels)
    assert len(api.sent) == 2


async def test_where_nfd_runs_it_gets_the_labels(api: LabelApi, finder: Finder) -> None:
    await labelled(api, FOUND)
    api.nfd = True
    api.worker(runs=True)
    await eventually(lambda: api.feature(FINDER_FEATURE) == FOUND)
    assert api.labels == {}
    made = api.features[f"{NAMESPACE}/{FINDER_FEATURE}"]
    assert made["metadata"]["labels"][features.NODE_LABEL] == NODE
    assert [one["kind"] for one in made["metadata"]["ownerReferences"]] == ["DaemonSet"]


async def test_labels_go_back_to_the_node_when_nfd_goes(api: LabelApi, finder: Finder, sysfs: Sysfs) -> None:
    api.nfd = True
    api.worker(runs=True)
    await eventually(lambda: api.feature(FINDER_FEATURE) == FOUND)
    api.worker(runs=False)
    await eventually(lambda: api.feature(FINDER_FEATURE) is None)
    await labelled(api, FOUND)


async def test_a_node_feature_without_gpus_is_deleted(api: LabelApi, sysfs: Sysfs) -> None:
    api.nfd = True
    api.worker(runs=True)
    address = sysfs.add("0x030200")
    async with beside(Finder(Config(NODE, str(sysfs.root), namespace=NAMESPACE), api, look_seconds=0.01).run()):
        await eventually(lambda: api.feature(FINDER_FEATURE) == FOUND)
        sysfs.remove(address)
        await eventually(lambda: api.feature(FINDER_FEATURE) is None)


async def test_a_missing_right_is_named_and_tried_again(api: LabelApi, finder: Finder) -> None:
    why = 'nodes "gpu-a" is forbidden: User "finder" cannot patch resource "nodes" in API group "" at the cluster scope'
    await labelled(api, FOUND)
    api.refuses["nodes"] = ApiError(403, "Forbidden", why)
    api.label(ANY, None)
    await eventually(lambda: "lacks verb patch on nodes" in finder.not_ready())
    api.refuses.clear()
    await labelled(api, FOUND)


async def test_devices_that_cannot_be_seen_are_an_error(api: LabelApi, sysfs: Sysfs) -> None:
    with pytest.raises(UserError, match="cannot see the PCI devices") as caught:
        await Finder(Config(NODE, str(sysfs.root / "elsewhere")), api).run()
    assert caught.value.code == 3
