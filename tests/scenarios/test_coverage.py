"""What is known to go wrong between schedulers, API servers and GPUs, and the scenarios that show it does not here.

Three collections, each point with a short title of ours: how Kubernetes really behaves (k8s 1 its scheduler, 2 its API
server, 4 pinning by the binding), the defects of Aliyun's gpushare (A what users meet, B its code, C operation), and
those measured in another extender (peers). A scenario names its points under `covers`; a point without one has a
reason here. A point that has both, or neither, fails: either the table or the scenarios are out of date.
"""

import pytest

from tests.scenarios import test_scenarios

PLUGIN = "the device plugin's job, not built yet"
NODE = "the node component's job, not built yet"
MANIFESTS = "deployment, and no decision of ours: see deploy"
HTTP = "HTTP and process level: see tests/extender"
WATCH = "lists and watches: see tests/kube"
SPEED = "a matter of time: see bench"
NOT_YET = "not built yet"

POINTS: dict[str, tuple[str, str]] = {
    "k8s 1.1": ("the next pod is asked about before the last one is bound", ""),
    "k8s 1.2": ("minutes may lie between answer and binding", ""),
    "k8s 1.3": ("only a sample of the nodes is offered", MANIFESTS),
    "k8s 1.4": ("extenders are not asked when totals are short", ""),
    "k8s 1.5": ("an answer in another form fails the call; a timed-out bind may still be under way", ""),
    "k8s 1.6": ("an error is retried by itself, a refusal waits for an event", ""),
    "k8s 1.7": ("nodes that preemption could help are tried, always in vain", ""),
    "k8s 1.8": ("equal reasons are counted, changed ones cost a write", ""),
    "k8s 1.9": ("scores are ten, and a tie lets the scheduler choose", ""),
    "k8s 1.10": ("refused pods are asked about again only after an event", ""),
    "k8s 1.11": ("nothing keeps a freed GPU for the pod that evicted for it", ""),
    "k8s 1.12": ("victims are chosen by totals", ""),
    "k8s 1.13": ("two extenders count separately", ""),
    "k8s 1.14": ("an extender switches off batching; the scheduler's client has limits of its own", MANIFESTS),
    "k8s 1.15": ("keys were lower case before 1.17", ""),
    "k8s 2.1": ("a binding carries annotations, once, for one uid", ""),
    "k8s 2.2": ("bookmarks carry null lists", WATCH),
    "k8s 2.3": ("a first list from the cache may be old", WATCH),
    "k8s 2.4": ("quantities are rewritten", ""),
    "k8s 2.5": ("capacity of an extended resource may be patched", NODE),
    "k8s 2.6": ("anyone may preset and patch annotations", ""),
    "k8s 4.1": ("an env taken from an annotation pins each container by itself", ""),
    "k8s 4.2": ("patched capacity survives kubelet's own updates", NODE),
    "k8s 4.3": ("the last env of a name wins; without the annotation there is no GPU", ""),
    "k8s 4.4": ("other mutators move containers, so keys are read and not computed", ""),
    "k8s 4.5": ("static env values are known at admission", MANIFESTS),
    "aliyun A1": ("no isolation of memory inside a GPU", "isolation backends, " + NOT_YET),
    "aliyun A2": ("a made-up env instead of a failed start", PLUGIN),
    "aliyun A3": ("several GPU containers in one pod do not work", ""),
    "aliyun A4": ("a pod cannot use several GPUs", ""),
    "aliyun A5": ("a failed bind has no reason", ""),
    "aliyun A6": ("few Kubernetes versions", MANIFESTS),
    "aliyun A7": ("two equal pods get each other's GPU", ""),
    "aliyun A8": ("filter reserves nothing", ""),
    "aliyun A9": ("all GPUs of a node count like the first", ""),
    "aliyun A10": ("MiB does not work on large nodes", ""),
    "aliyun A11": ("GiB rounds memory away", ""),
    "aliyun A12": ("accounting is lost when a node restarts", ""),
    "aliyun A13": ("memory is freed when deletion is asked for", ""),
    "aliyun A14": ("pods fail at admission, again and again", ""),
    "aliyun A15": ("binpack only, and nodes are not scored", ""),
    "aliyun A16": ("managed control planes cannot be configured", MANIFESTS),
    "aliyun A17": ("the extender's address is not reachable", MANIFESTS),
    "aliyun A18": ("whole nodes instead of names crash it", ""),
    "aliyun A19": ("pending on an empty GPU after deletions", ""),
    "aliyun A20": ("needs nvidia as default runtime, hangs without", PLUGIN),
    "aliyun A21": ("no metrics", HTTP),
    "aliyun A22": ("no whole GPUs beside shared ones, none beside NVIDIA's plugin", ""),
    "aliyun A23": ("a tenant's own env overrides the GPU", ""),
    "aliyun A24": ("state is lost with the process", ""),
    "aliyun A25": ("2.5 pods a second", SPEED),
    "aliyun A26": ("no exclusive use of a GPU", ""),
    "aliyun A27": ("no MIG, no other architectures", NOT_YET),
    "aliyun A28": ("memory used outside Kubernetes is not seen", "the monitor's job, not built yet"),
    "aliyun B1": ("a fast delete leaks its memory", ""),
    "aliyun B2": ("mass deletion crashes it", ""),
    "aliyun B3": ("a pod recreated under its name hides the old one", ""),
    "aliyun B4": ("a list that merges delete and create does too", ""),
    "aliyun B5": ("one event a second", SPEED),
    "aliyun B6": ("memory is freed after the scheduler has asked again", ""),
    "aliyun B7": ("changes of a node's GPUs are not seen", ""),
    "aliyun B8": ("a node that comes back starts with phantom pods", ""),
    "aliyun B9": ("free memory underflows", ""),
    "aliyun B10": ("a pod on a missing node prevents the start", ""),
    "aliyun B11": ("inspecting an unknown node crashes it", ""),
    "aliyun B12": ("maps are read while they are written", "one event loop, and no verb awaits: nothing can race"),
    "aliyun B13": ("nonsense in the ConfigMap takes GPU 0 out", ""),
    "aliyun B14": ("answers from a frozen cache while stopping", HTTP),
    "aliyun B15": ("pods on a node without a GPU count are dropped", ""),
    "aliyun B16": ("three meanings of a GPU index", ""),
    "aliyun B17": ("pods that are never marked as assigned", ""),
    "aliyun B18": ("one bad GPU takes its node out", PLUGIN),
    "aliyun B19": ("health events flood kubelet", PLUGIN),
    "aliyun B20": ("the GPU count is lost with the node object", ""),
    "aliyun B21": ("a request in an init container only can never be bound", ""),
    "aliyun B22": ("conflicts are told by the words of an error", ""),
    "aliyun B23": ("preemption ignores single GPUs", ""),
    "aliyun B24": ("the client of kubelet's port leaks and trusts anybody", "nothing here asks kubelet's port"),
    "aliyun B25": ("lists pods at each container start", PLUGIN),
    "aliyun B26": ("annotates a namesake", ""),
    "aliyun B27": ("bodies are not checked", ""),
    "aliyun B28": ("inspect guesses the unit, and leaves pods out", ""),
    "aliyun C1": ("anyone on the network may bind pods", MANIFESTS),
    "aliyun C2": ("pod specs in logs and errors", "logs carry names and numbers only: see tests/obs"),
    "aliyun C3": ("reads all ConfigMaps of the cluster", MANIFESTS),
    "aliyun C4": ("no probes, no requests, no budget", MANIFESTS),
    "aliyun C5": ("without it nothing is scheduled", MANIFESTS),
    "aliyun C6": ("cannot be built any more, has no tests", "its build, not its behaviour: see tests/tools"),
    "aliyun C7": ("a CPU per node, no tolerations", MANIFESTS),
    "aliyun C8": ("documentation of removed APIs", "documentation, " + NOT_YET),
    "aliyun C9": ("promises that were not kept", "plans are no behaviour"),
    "peers 2.5.1": ("twelve calls at once get one GPU", ""),
    "peers 2.5.2": ("taking a GPU out of use needs a restart", ""),
    "peers 2.5.3": ("native sidecars are not counted", ""),
    "peers 2.5.4": ("minutes until the first answer", SPEED),
    "peers 2.5.5": ("an amount it cannot read is no request, or another one", ""),
    "peers 2.5.6": ("bodies over 1 MiB are cut", HTTP),
    "peers 2.5.7": ("ten pods a GPU, whatever is free", ""),
    "peers 2.5.8": ("a tenant switches it off by an env", ""),
    "peers 2.5.9": ("pods that slipped past are not known", ""),
}


def _covered() -> dict[str, list[str]]:
    covered: dict[str, list[str]] = {}
    for scenario in test_scenarios.scenarios():
        for point in scenario.get("covers", []):
            covered.setdefault(point, []).append(scenario["name"])
    return covered


def test_the_list_is_complete() -> None:
    wanted = [f"k8s {part}.{i}" for part, last in ((1, 15), (2, 6), (4, 5)) for i in range(1, last + 1)]
    wanted += [f"aliyun {part}{i}" for part, last in (("A", 28), ("B", 28), ("C", 9)) for i in range(1, last + 1)]
    wanted += [f"peers 2.5.{i}" for i in range(1, 10)]
    assert list(POINTS) == wanted


@pytest.mark.parametrize("point", POINTS)
def test_point_has_a_scenario_or_a_reason(point: str) -> None:
    title, reason = POINTS[point]
    scenarios = _covered().get(point, [])
    assert bool(scenarios) != bool(reason), f"{point} {title}: scenarios {scenarios}, reason {reason!r}"


def test_scenarios_name_only_points_that_exist() -> None:
    assert set(_covered()) <= set(POINTS)
