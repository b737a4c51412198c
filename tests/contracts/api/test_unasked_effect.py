"""What a new pod's containers that ask for no GPU are told, if the server does as deploy/unasked.yaml.
`tests/e2e/test_unasked` runs the very same cases against that policy on a real API server."""

import dataclasses

import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from tests.contracts.api.test_admission_effect import GPU_COUNT, container, environments, pod, reference, told
from tests.support import api_client
from tests.support.api_client import GPU_MEM, Object

NVIDIA = "nvidia.com/gpu"
VOID = "NVIDIA_VISIBLE_DEVICES=void"
OWN = "NVIDIA_VISIBLE_DEVICES=all"


def own(value: str = "all") -> Object:
    return {"name": "NVIDIA_VISIBLE_DEVICES", "value": value}


def asking(name: str, resource: str, amount: int | str, env: list[Object] | None = None) -> Object:
    return container(name, env) | {"resources": {"limits": {resource: amount}}}


@dataclasses.dataclass(frozen=True)
class Case:
    """What is sent, and the env of each container that comes of it, by name. `pinned`: deploy/admission.yaml is in
    force as well; both policies are then asked, whatever their order."""

    apps: list[Object]
    expected: dict[str, list[str]]
    inits: list[Object] = dataclasses.field(default_factory=list)
    spec: Object = dataclasses.field(default_factory=dict)
    pinned: bool = False

    def pod(self, name: str) -> Object:
        made = pod(self.apps, self.inits, name=name)
        return made | {"spec": made["spec"] | self.spec}


MANY = {f"example.com/r{i}": 1 for i in range(16)}

CASES: dict[str, Case] = {
    "no env at all: the image may have one": Case([container("main")], {"main": [VOID]}),
    "its own value loses": Case([container("main", [own()])], {"main": [OWN, VOID]}),
    "other variables stay": Case(
        [container("main", [{"name": "A", "value": "b"}], cpu="1")], {"main": ["A=b", VOID]}
    ),
    "who says void already is left": Case([container("main", [own("void")])], {"main": [VOID]}),
    "void before another value counts for nothing": Case(
        [container("main", [own("void"), own()])], {"main": [VOID, OWN, VOID]}
    ),
    "a container beside one that asks, with and without our pin": Case(
        [asking("main", GPU_MEM, 1), container("free", [own()])], {"main": [], "free": [OWN, VOID]}
    ),
    "the same where the pin is direct": Case(
        [asking("main", GPU_MEM, 1), container("free", [own()])],
        {"main": told(1, "visible-0"), "free": [OWN, VOID]},
        pinned=True,
    ),
    "init containers and sidecars": Case(
        [asking("main", GPU_COUNT, 1)],
        {"main": [], "fetch": [OWN, VOID], "proxy": [VOID], "prepare": []},
        inits=[
            container("fetch", [own()]),
            container("proxy") | {"restartPolicy": "Always"},
            asking("prepare", GPU_MEM, 5),
        ],
    ),
    "who asks for nothing in so many words": Case(
        [asking("mem", GPU_MEM, 0), asking("count", GPU_COUNT, "0"), asking("nvidia", NVIDIA, 0, [own()])],
        {"mem": [VOID], "count": [VOID], "nvidia": [OWN, VOID]},
    ),
    "what another device plugin gives stays as it is": Case(
        [
            asking("whole", NVIDIA, 1),
            asking("shared", "nvidia.com/gpu.shared", 1, [own()]),
            asking("slice", "nvidia.com/mig-1g.5gb", 1),
        ],
        {"whole": [], "shared": [OWN], "slice": []},
    ),
    "no slice at all": Case([asking("slice", "nvidia.com/mig-1g.5gb", 0)], {"slice": [VOID]}),
    "something else of nvidia.com is no GPU": Case(
        [asking("net", "nvidia.com/hostdev", 1, [own()])], {"net": [OWN, VOID]}
    ),
    "a slice among very many resources is not looked for": Case(
        [container("main") | {"resources": {"limits": MANY | {"nvidia.com/mig-1g.5gb": 1}}}], {"main": [VOID]}
    ),
    "who names the node has asked nobody but us": Case(
        [asking("main", NVIDIA, 1, [own()]), asking("slice", "nvidia.com/mig-1g.5gb", 1), asking("ours", GPU_MEM, 5)],
        {"main": [OWN, VOID], "slice": [VOID], "ours": []},
        spec={"nodeName": "gpu-a"},
    ),
    "a reference like ours, by somebody who asks nothing": Case(
        [container("main", [reference("gpushare.io/visible-0")])],
        {"main": ["NVIDIA_VISIBLE_DEVICES<gpushare.io/visible-0", VOID]},
    ),
}  # fmt: skip


ZERO = Case([asking("mem", GPU_MEM, 0)], {}, pinned=True)


def check_zero(made: Object) -> None:
    """Which policy comes first is nobody's business: what counts is the last entry, to which no annotation belongs."""
    assert environments(made)["mem"][-1] == told(0, "visible-0")[-1]


@pytest.mark.parametrize("case", CASES)
async def test_who_asks_nothing_is_told_so_as_the_policy_does(case: str) -> None:
    tried = CASES[case]
    async with (
        ApiServer(void_unasked=True, pin_directly=tried.pinned) as server,
        api_client.connect(server.url) as api,
    ):
        assert environments(await api.create(api.pods, tried.pod("p"))) == tried.expected


async def test_zero_is_pinned_where_the_pin_is_direct_and_sees_as_little() -> None:
    async with ApiServer(void_unasked=True, pin_directly=True) as server, api_client.connect(server.url) as api:
        check_zero(await api.create(api.pods, ZERO.pod("zero")))


@pytest.mark.parametrize(
    ("namespace", "labels", "env"),
    [
        ("team", {}, [VOID]),
        ("team", {"gpushare.io/unasked": "void"}, [VOID]),
        ("team", {"gpushare.io/unasked": "leave"}, []),
        ("team", {"gpushare.io/unasked": "something"}, [VOID]),
        ("kube-system", {}, []),
        ("gpu-operator", {}, []),
        ("gpu-operator", {"gpushare.io/unasked": "void"}, [VOID]),
    ],
)
async def test_the_namespace_says_where(namespace: str, labels: dict[str, str], env: list[str]) -> None:
    async with ApiServer(void_unasked=True) as server, api_client.connect(server.url) as api:
        if namespace != "kube-system":
            await api.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
        made = await api.create(f"/api/v1/namespaces/{namespace}/pods", pod([container("main")], [], name="p"))
        assert environments(made) == {"main": env}


async def test_a_pod_with_more_containers_than_can_be_looked_through_is_refused() -> None:
    many = [container(f"c{i}") for i in range(501)]
    async with ApiServer(void_unasked=True) as server, api_client.connect(server.url) as api:
        for apps, inits in ((many, []), (many[:1], [*many[1:], container("more")])):
            refused = await api.call("POST", api.pods, pod(apps, inits, name="many"))
            assert refused.code == 403
            assert refused.message.endswith(
                "more than 500 containers cannot be looked through for those that ask for no GPU"
            )
        just = await api.create(api.pods, pod(many[:500], [], name="just"))
        assert environments(just)["c499"] == [VOID]
