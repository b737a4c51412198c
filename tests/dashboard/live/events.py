"""Random things that happen to a small cluster: few names, so that everything meets everything."""

import json
from collections.abc import Callable

from hypothesis import strategies as st

from gpushare.core.facts import names
from tests.dashboard.live import world
from tests.dashboard.live.world import NOW, World

PODS, NODES = ("p", "q", "r", "s"), ("a", "b")
Event = Callable[[World], None]


@st.composite
def pods(draw: st.DrawFn, name: str = "") -> bytes:
    name = name or draw(st.sampled_from(PODS))
    on = draw(st.sampled_from(["", "", *NODES, "gone"]))
    amounts = draw(st.lists(st.integers(1, 6), min_size=0, max_size=2))
    uuids = [f"GPU-{draw(st.sampled_from(NODES))}-{draw(st.integers(0, 1))}" for _ in amounts] if on else []
    notes = {}
    if draw(st.booleans()):
        notes[names.ALIYUN_IDX] = str(draw(st.integers(0, 2)))
    if not on and draw(st.booleans()):
        keys = [[f"GPU-a-{draw(st.integers(0, 1))}"] for _ in amounts]
        notes[names.KEPT] = json.dumps({"node": "a", "gpus": keys})
    return world.pod(
        *amounts,
        name=name,
        uid=f"uid-{name}",
        on=on,
        gpus=uuids if draw(st.booleans()) else [],
        notes={**notes, "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        whole=draw(st.sampled_from([0, 0, 0, 1])),
        nvidia=draw(st.sampled_from([0, 0, 0, 1])),
        direct=draw(st.booleans()),
        phase=draw(st.sampled_from(["Pending", "Running", "Running", "Succeeded", "Failed"])),
        reason=draw(st.sampled_from([None, "UnexpectedAdmissionError"])),
        nominated=draw(st.sampled_from([None, None, *NODES])) if not on else None,
        terminating=draw(st.sampled_from([False, False, True])),
        priority=draw(st.integers(0, 1)),
        unschedulable=draw(st.sampled_from([None, "no"])) if not on else None,
        claim_volume=draw(st.booleans()),
    )


@st.composite
def nodes(draw: st.DrawFn, name: str = "") -> bytes:
    totals = draw(st.sampled_from([(8, 8), (8,), (4, 4), ()]))
    pin = draw(st.sampled_from(["direct", "direct", "direct", "plugin", "aliyun", "nvidia"]))
    return world.node(
        *totals,
        name=name or draw(st.sampled_from(NODES)),
        pin=pin,
        unit=draw(st.sampled_from(["MiB", "MiB", "GiB"])),
        state=draw(st.sampled_from(["ready", "ready", "draining"])),
        unhealthy=draw(st.sets(st.integers(0, 1), max_size=1)),
        capacity=draw(st.sampled_from([None, None, 3])),
        zone=draw(st.sampled_from(["", "east"])),
        cordoned=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def gpunodes(draw: st.DrawFn) -> bytes:
    figures = st.sampled_from([None, 0, 3, 9])
    gpus = [
        {
            "usedMiB": draw(figures),
            "utilization": draw(figures),
            "powerWatts": draw(figures),
            "containers": [
                world.container(f"uid-{pod}", 2, draw(figures)) for pod in draw(st.sets(st.sampled_from(PODS)))
            ],
        }
        for _ in range(2)
    ]
    at = NOW - draw(st.sampled_from([-120, 0, 5, 80, 4000]))
    return world.gpunode(*gpus, name=draw(st.sampled_from(NODES)), at=at)


BAD = b'{"metadata":{"name":"a"},"status":{"gpus":"many"}}'

EVENTS: st.SearchStrategy[Event] = st.one_of(
    pods().map(lambda body: lambda on: on.put_pod(body)),
    pods().map(lambda body: lambda on: on.put_pod(body)),
    st.sampled_from(PODS).map(lambda name: lambda on: on.end_pod(f"uid-{name}")),
    st.tuples(*map(pods, PODS[:2])).map(lambda listed: lambda on: on.list_pods(*listed)),
    nodes().map(lambda body: lambda on: on.put_node(body)),
    nodes().map(lambda body: lambda on: on.put_node(body)),
    st.sampled_from(NODES).map(lambda name: lambda on: on.end_node(name)),
    nodes("a").map(lambda body: lambda on: on.list_nodes(body)),
    gpunodes().map(lambda body: lambda on: on.put_gpunode(body)),
    st.just(lambda on: on.put_gpunode(BAD)),
    st.sampled_from(NODES).map(lambda name: lambda on: on.end_gpunode(name)),
    st.sampled_from(["0", "1", "", "0,1"]).map(lambda gpus: lambda on: on.put_map(world.config_map("a", gpus))),
    st.just(lambda on: on.list_maps()),
)
