"""Which container uses how much of which GPU: pods, samples and owners of processes in, use of containers out."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import NodeFacts, Pin, Request
from gpushare.gpu.sample import Pass, Process, Sample
from gpushare.node.pods import STATIC, NodePods, Pod
from gpushare.node.publishing.desired import Held, Offered
from gpushare.node.usage import attribution
from gpushare.node.usage.model import ContainerUse, GpuUse, Owner
from tests.support import builders
from tests.support import objects as written

MIB = 1 << 20
FACTS = builders.facts(16000, 8000)
FIRST, SECOND = (gpu.uuid for gpu in FACTS.gpus)


def _id(name: str) -> str:
    return name.encode().hex().ljust(64, "0")


def _pod(
    words: dict[str, Any],
    *gpus: int,
    facts: NodeFacts = FACTS,
    runs: tuple[str, ...] = (),
    annotations: Mapping[str, str] | None = None,
) -> Pod:
    """Bound, each share to one GPU. `runs`: its containers that run."""
    made = written.pod({"direct": facts.pin is Pin.DIRECT, **words})
    seen = request.facts(msgspec.convert(made, objects.Pod), None).request
    if isinstance(seen, Request):
        places = tuple((gpu,) for gpu in gpus)
        made["metadata"]["annotations"] |= pod_gpus.write(seen, facts, places, extender="x", nanoseconds=1)
    made["metadata"]["annotations"] |= annotations or {}
    made["spec"]["nodeName"] = "n"
    statuses = [
        {"name": name, "containerID": f"containerd://{_id(words['name'] + name)}", "state": {"running": {}}}
        for name in runs
    ]
    inits = words.get("init", {})
    made["status"] = {
        "phase": "Running",
        "containerStatuses": [status for status in statuses if status["name"] not in inits],
        "initContainerStatuses": [status for status in statuses if status["name"] in inits],
    }
    return msgspec.convert(made, Pod)


def _joined(
    *pods: Pod,
    on: Mapping[str, Sequence[Process] | None] | None = None,
    owners: dict[int, Owner] | None = None,
    used: int | None = 9000 * MIB,
    facts: NodeFacts = FACTS,
) -> dict[str, GpuUse]:
    """`on`: the processes by GPU; without it there are no figures."""
    here = NodePods()
    for pod in pods:
        here.upsert(pod)
    samples = [
        Sample(uuid, 0, memory_used=used, processes=tuple(processes) if processes is not None else None)
        for uuid, processes in (on or {}).items()
    ]
    sampled = Pass("580", tuple(samples)) if on is not None else None
    offered = Offered(facts, {FIRST: Held(5000, 0)})
    gpus = attribution.joined(offered, here, sampled, owners, {FIRST: "00000000:3B:00.0"}, attribution.Given())
    return {gpu.uuid: gpu for gpu in gpus}


def _of(gpu: GpuUse) -> dict[str, ContainerUse]:
    return {f"{use.pod}/{use.container}": use for use in gpu.containers}


def _mib(gpu: GpuUse) -> dict[str, int | None]:
    return {name: use.used // MIB if use.used is not None else None for name, use in _of(gpu).items()}


def test_processes_count_for_the_container_whose_cgroup_they_are_in() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000, "helper": 2000}}, 0, 0, runs=("main", "helper"))
    idle = _pod({"name": "idle", "containers": {"main": 1000}}, 0, runs=("main",))
    on = {
        FIRST: [Process(7, 3000 * MIB, 40), Process(8, 500 * MIB, 70), Process(9, 100 * MIB, 5)], SECOND: []
    }  # fmt: skip
    owners = {pid: Owner("web-uid", _id("webmain")) for pid in (7, 8)} | {9: Owner("web-uid", _id("webhelper"))}
    gpus = _joined(web, idle, on=on, owners=owners, used=4000 * MIB)
    first = gpus[FIRST]
    assert _mib(first) == {"web/main": 3500, "web/helper": 100, "idle/main": 0}
    main, helper = _of(first)["web/main"], _of(first)["web/helper"]
    assert (main.granted, main.sm, main.pids) == (6000 * MIB, 1.0, (7, 8))  # no more than all of the GPU
    assert (helper.granted, helper.sm, helper.pids) == (2000 * MIB, 0.05, (9,))
    assert (_of(first)["idle/main"].sm, _of(first)["idle/main"].pids) == (0.0, ())
    assert (first.unattributed, first.unknown_processes) == (400 * MIB, 0)
    assert (first.bus, first.granted) == ("00000000:3B:00.0", 5000 * MIB)
    assert (gpus[SECOND].containers, gpus[SECOND].bus) == ((), "")


def test_what_is_of_no_container_that_was_given_this_gpu_is_unattributed() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000, "plain": None}}, 0, runs=("main", "plain"))
    other = _pod({"name": "other", "containers": {"main": 600}}, 1, runs=("main",))
    processes = [Process(pid, 1000 * MIB, 1) for pid in (1, 2, 3, 4, 5)]
    owners = {
        1: Owner("web-uid", _id("webmain")),
        2: Owner("web-uid", _id("webplain")),  # asks for no GPU
        3: Owner("other-uid", _id("othermain")),  # was given another one
        4: Owner("gone-uid", _id("gonemain")),  # 5 is of no pod
    }
    gpu = _joined(web, other, on={FIRST: processes}, owners=owners, used=5200 * MIB)[FIRST]
    assert _mib(gpu) == {"web/main": 1000}
    assert (gpu.unattributed, gpu.unknown_processes) == (4200 * MIB, 4)


def test_without_the_nodes_processes_the_use_of_containers_is_unknown_and_not_0() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000}}, 0, runs=("main",))
    for gpu in (
        _joined(web, on={FIRST: [Process(7, MIB, 1)]}, owners=None)[FIRST],  # nobody can say whose it is
        _joined(web, on={FIRST: None}, owners={})[FIRST],  # the driver does not tell processes
        _joined(web, on={SECOND: []}, owners={})[FIRST],  # the driver does not show the GPU
        _joined(web, owners={})[FIRST],  # figures are too old
    ):
        (use,) = gpu.containers
        assert (use.granted, use.used, use.sm, use.pids) == (6000 * MIB, None, None, None)
        assert (gpu.unattributed, gpu.unknown_processes) == (None, None)


def test_a_process_whose_memory_is_not_told_makes_the_use_of_its_container_unknown() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000}}, 0, runs=("main",))
    too = _pod({"name": "too", "containers": {"main": 1000}}, 0, runs=("main",))
    processes = [Process(7, 10 * MIB, 5), Process(8, None, None), Process(9, 20 * MIB, 7)]
    owners = {pid: Owner("web-uid", _id("webmain")) for pid in (7, 8)} | {9: Owner("too-uid", _id("toomain"))}
    gpu = _joined(web, too, on={FIRST: processes}, owners=owners)[FIRST]
    assert _mib(gpu) == {"web/main": None, "too/main": 20}
    assert (_of(gpu)["web/main"].sm, _of(gpu)["web/main"].pids) == (None, (7, 8))
    assert (gpu.unattributed, gpu.unknown_processes) == (None, 0)


def test_what_no_process_accounts_for_is_unknown_if_the_gpu_does_not_tell_its_memory_and_never_below_0() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000}}, 0, runs=("main",))
    on = {FIRST: [Process(7, 10 * MIB, 5)]}
    owners = {7: Owner("web-uid", _id("webmain"))}
    assert _joined(web, on=on, owners=owners, used=None)[FIRST].unattributed is None
    assert _joined(web, on=on, owners=owners, used=9 * MIB)[FIRST].unattributed == 0


def test_an_init_container_counts_while_it_runs_and_a_sidecar_always() -> None:
    words = {"name": "p", "init": {"side": {"mem": 500, "sidecar": True}, "fetch": 3000}, "containers": {"main": 1000}}
    before, after = _pod(words, 0, 0, 0, runs=("side", "fetch")), _pod(words, 0, 0, 0, runs=("side", "main"))
    on = {FIRST: [Process(7, 10 * MIB, 5), Process(8, 20 * MIB, 5)]}
    owners = {7: Owner("p-uid", _id("pside")), 8: Owner("p-uid", _id("pfetch"))}
    assert _mib(_joined(before, on=on, owners=owners)[FIRST]) == {"p/side": 10, "p/fetch": 20, "p/main": 0}
    assert _mib(_joined(after, on=on, owners=owners)[FIRST]) == {"p/side": 10, "p/main": 0}


def test_a_restarted_container_is_found_before_kubelet_has_written_its_new_id() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000}}, 0, runs=("main",))
    on = {FIRST: [Process(7, 10 * MIB, 5)]}
    assert _mib(_joined(web, on=on, owners={7: Owner("web-uid", _id("new"))})[FIRST]) == {"web/main": 10}


def test_a_new_id_is_not_guessed_between_two_containers_nor_beside_a_known_process() -> None:
    two = _pod({"name": "two", "containers": {"main": 600, "helper": 60}}, 0, 0, runs=("main", "helper"))
    one = _pod({"name": "one", "containers": {"main": 600}}, 1, runs=("main",))
    new, known = Process(7, 10 * MIB, 5), Process(8, 20 * MIB, 5)
    owners = {7: Owner("two-uid", _id("new"))}
    gpu = _joined(two, on={FIRST: [new]}, owners=owners)[FIRST]
    assert (_mib(gpu), gpu.unknown_processes) == ({"two/main": 0, "two/helper": 0}, 1)
    owners = {7: Owner("one-uid", _id("new")), 8: Owner("one-uid", _id("onemain"))}
    gpu = _joined(one, on={SECOND: [new, known]}, owners=owners)[SECOND]
    assert (_mib(gpu), gpu.unknown_processes) == ({"one/main": 20}, 1)


def test_a_container_that_its_cgroup_names_without_a_pod_is_found_by_its_id() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000}}, 0, runs=("main",))
    on = {FIRST: [Process(7, 10 * MIB, 5)]}
    assert _mib(_joined(web, on=on, owners={7: Owner("", _id("webmain"))})[FIRST]) == {"web/main": 10}
    assert _mib(_joined(web, on=on, owners={7: Owner("", _id("new"))})[FIRST]) == {"web/main": 0}


def test_a_static_pod_is_found_by_the_uid_that_kubelet_gave_it() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000}}, 0, annotations={STATIC: "hash"})
    on = {FIRST: [Process(7, 10 * MIB, 5)]}
    assert _mib(_joined(web, on=on, owners={7: Owner("hash", _id("new"))})[FIRST]) == {"web/main": 10}


def test_whole_gpus_and_amounts_of_another_unit_are_what_the_pod_really_has() -> None:
    whole = _pod({"name": "whole", "containers": {"main": {"count": 1}}}, 1)
    (use,) = _joined(whole)[SECOND].containers
    assert (use.granted, use.whole) == (8000 * MIB, True)
    gib = builders.facts(15, 7, unit="GiB")
    (use,) = _joined(_pod({"name": "old", "containers": {"main": 3}}, 0, facts=gib))[FIRST].containers
    assert (use.granted, use.whole) == (3 * 1024 * MIB, False)


def test_an_mps_share_has_what_its_allocation_says() -> None:
    facts = builders.facts(16000, 8000, slots=4)
    pod = _pod({"name": "m", "containers": {"main": {"mps": 1}}}, 0, facts=facts)
    now = builders.facts(16000, 8000, slots=10)  # its slot stays as large as it was
    (use,) = _joined(pod, facts=now)[FIRST].containers
    assert use.granted == 4000 * MIB


def test_a_pod_that_has_ended_or_is_nowhere_known_is_on_no_gpu() -> None:
    ended = _pod({"name": "a", "containers": {"main": 6000}}, 0)
    ended.status.phase = "Succeeded"
    lost = _pod({"name": "b", "containers": {"main": 6000}}, 0)
    lost.metadata.annotations = {}
    assert _joined(ended, lost)[FIRST].containers == ()


# Nodes that sell GPUs by count


def test_where_gpus_are_sold_by_count_their_processes_tell_who_has_them() -> None:
    facts = builders.facts(16000, 8000, pin="nvidia")
    train = _pod({"name": "train", "direct": False, "containers": {"main": {"nvidia": 1}}}, runs=("main",))
    plain = _pod({"name": "plain", "direct": False, "containers": {"main": None}}, runs=("main",))
    on = {FIRST: [Process(7, 10 * MIB, 5), Process(8, 5 * MIB, 5)], SECOND: []}
    owners = {7: Owner("train-uid", _id("trainmain")), 8: Owner("plain-uid", _id("plainmain"))}
    gpus = _joined(train, plain, on=on, owners=owners, facts=facts, used=20 * MIB)
    assert gpus[FIRST].containers == (
        ContainerUse("default", "train", "train-uid", "main", 16000 * MIB, True, 10 * MIB, 0.05, (7,)),
    )
    assert (gpus[FIRST].unattributed, gpus[FIRST].unknown_processes) == (10 * MIB, 1)
    assert (gpus[FIRST].granted, gpus[FIRST].shares) == (16000 * MIB, 1)
    assert gpus[SECOND].containers == ()
    assert (gpus[SECOND].granted, gpus[SECOND].shares) == (None, 0), "kubelet may have given it out"


def test_where_gpus_are_sold_by_count_and_no_processes_are_seen_nothing_is_known_to_be_given_out() -> None:
    facts = builders.facts(16000, 8000, pin="nvidia")
    train = _pod({"name": "train", "direct": False, "containers": {"main": {"nvidia": 1}}}, runs=("main",))
    gpu = _joined(train, on={FIRST: [Process(7, 10 * MIB, 5)]}, owners=None, facts=facts)[FIRST]
    assert (gpu.granted, gpu.shares, gpu.containers) == (None, None, ())


def test_nobody_says_how_much_memory_comes_with_a_replica() -> None:
    facts = builders.facts(16000, 8000, pin="nvidia", sold=[{"resource": names.NVIDIA_GPU, "replicas": 4}])
    train = _pod({"name": "train", "direct": False, "containers": {"main": {"nvidia": 1}}}, runs=("main",))
    owners = {7: Owner("train-uid", _id("trainmain"))}
    (use,) = _joined(train, on={FIRST: [Process(7, 10 * MIB, 5)]}, owners=owners, facts=facts)[FIRST].containers
    assert (use.granted, use.whole, use.used) == (None, False, 10 * MIB)


def test_what_was_kept_of_a_pod_is_read_again_once_the_pod_or_its_node_changes() -> None:
    kept, here = attribution.Given(), NodePods()

    def given(facts: NodeFacts = FACTS) -> dict[int, list[int | None]]:
        return {gpu: [use.granted for use in on.values()] for gpu, on in kept.on(here, facts).items()}

    here.upsert(_pod({"name": "web", "containers": {"main": 6000}}, 0, runs=("main",)))
    assert given() == given() == {0: [6000 * MIB]}
    here.upsert(_pod({"name": "web", "containers": {"main": 6000}}, 1, runs=("main",)))  # moved
    assert given() == {1: [6000 * MIB]}
    assert given(builders.facts(16000)) == {}  # the node has lost that GPU
    assert given() == {1: [6000 * MIB]}
    here.relisted(set())
    assert given() == {}


def test_a_container_id_counts_only_with_the_pod_that_has_it() -> None:
    victim = _pod({"name": "victim", "containers": {"main": 6000}}, 0, runs=("main",))
    other = _pod({"name": "other", "containers": {"main": 600}}, 0, runs=("main",))
    on = {FIRST: [Process(7, 9000 * MIB, 1)]}
    gpu = _joined(victim, other, on=on, owners={7: Owner("other-uid", _id("victimmain"))})[FIRST]
    assert _mib(gpu) == {"victim/main": 0, "other/main": 0}


def test_a_pod_that_says_it_is_a_copy_does_not_take_the_use_of_another_pod() -> None:
    web = _pod({"name": "web", "containers": {"main": 6000}}, 0, runs=("main",))
    liar = _pod({"name": "liar", "containers": {"main": 600}}, 0, annotations={STATIC: "web-uid"})
    on = {FIRST: [Process(7, 10 * MIB, 1)]}
    for pods in ((web, liar), (liar, web)):
        gpu = _joined(*pods, on=on, owners={7: Owner("web-uid", _id("webmain"))})[FIRST]
        assert _mib(gpu) == {"web/main": 10, "liar/main": 0}
