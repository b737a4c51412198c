"""The admission policies know every key that only we write, and leave people theirs.

What they do on an API server is tried on a real one; here it is made sure that no key is forgotten when one is added.
"""

import re

import pytest

from gpushare.core.admission import containers, guard, mps, pinning, scheduler_name, unasked
from gpushare.core.facts import names, options, policies
from tests.support import manifests
from tools import render_admission

KEYS = {
    value for value in vars(names).values() if isinstance(value, str) and re.match(r"ALIYUN_COM_|gpushare\.io/", value)
}
PEOPLES = {names.MEMORY_UNIT, names.POLICY, names.MPS_THREADS, names.ONLY_ASKED}
ON_NODES = {
    f"kube-system:{manifests.NODE}",
    "kube-system:gpushare-device-plugin",
    "kube-system:gpushare-nvidia",  # it writes to no pod, but to its node
    "gpu:keti-gpu-device-plugin",
}
ON_ALL_NODES = {"kube-system:gpushare-finder", "kube-system:gpushare-validator"}  # they write to no pod either
OPERATORS = {names.PART_OF, names.WANTED, names.CLEAN_UP}  # of objects that the operator made, not of pods and nodes
OURS = KEYS - PEOPLES - OPERATORS | {names.ALLOCATION}


def _text(kind: str, name: str) -> str:
    """All its expressions."""
    spec = manifests.one(name, kind)["spec"]
    found = [variable["expression"] for variable in spec["variables"]]
    found += [mutation["jsonPatch"]["expression"] for mutation in spec.get("mutations", ())]
    return "\n".join(found)


@pytest.mark.parametrize("key", sorted(OURS))
def test_the_guard_knows_every_key_that_only_we_write(key: str) -> None:
    assert f"'{key}'" in _text("ValidatingAdmissionPolicy", "guard.yaml")


@pytest.mark.parametrize("key", sorted(PEOPLES | {names.GPU_COUNT}))
def test_the_guard_leaves_people_their_own_keys(key: str) -> None:
    assert f"'{key}'" not in _text("ValidatingAdmissionPolicy", "guard.yaml")


def test_the_guard_sees_every_way_to_write_an_annotation() -> None:
    rules = manifests.one("guard.yaml", "ValidatingAdmissionPolicy")["spec"]["matchConstraints"]["resourceRules"]
    assert {(operation, what) for rule in rules for operation in rule["operations"] for what in rule["resources"]} == {
        ("CREATE", "pods"),
        ("UPDATE", "pods"),
        ("CREATE", "pods/status"),  # does not exist, and does no harm
        ("UPDATE", "pods/status"),
        ("CREATE", "pods/binding"),
        ("CREATE", "bindings"),
        ("UPDATE", "nodes"),
        ("UPDATE", "nodes/status"),
        ("CREATE", "gpunodes"),
        ("UPDATE", "gpunodes/status"),  # the status is all that there is to forge
    }


def _accounts(file: str, condition: str) -> set[str]:
    """Those that a condition names, with their namespaces."""
    conditions = manifests.one(file, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    (expression,) = (c["expression"] for c in conditions if c["name"] == condition)
    return set(re.findall(r"'system:serviceaccount:([^']+)'", expression))


def test_the_guard_trusts_our_accounts_and_nobody_else() -> None:
    trusted = {f"kube-system:{manifests.EXTENDER}", "gpu:scheduler", *ON_NODES}
    assert _accounts("guard.yaml", "not-by-gpushare") == trusted
    assert set(guard.BY_DEFAULT.all) == {f"system:serviceaccount:{name}" for name in trusted}


def test_policy_and_webhook_guard_the_same_with_the_same_words() -> None:
    policy = manifests.one("guard.yaml", "ValidatingAdmissionPolicy")["spec"]
    says = {variable["name"]: variable["expression"] for variable in policy["variables"]}
    of_nodes = [word for key, account in guard.BY_DEFAULT.also.items() for word in (account, key)]
    assert re.findall("'([^']+)'", says["ours"]) == [names.NODE_GPUS, *of_nodes, *guard.OF_PODS]
    for prefixes in re.findall(r"\[('[^\]]*')\]\.exists\(", says["written"]):
        assert re.findall("'([^']+)'", prefixes) == list(guard.OF_CONTAINERS)
    assert set(re.findall(r"<= (\d+)", says["few"])) == {str(guard.MOST)}
    gpu_nodes, many, ours = policy["validations"]
    assert gpu_nodes["message"] == guard.GPU_NODE
    assert many["message"] == guard.TOO_MANY
    words = "".join(re.findall("'([^']+)'", ours["messageExpression"]))
    assert guard.POD.partition("{keys}")[2] in words
    assert guard.NODE.partition("{keys}")[2] in words


@pytest.mark.parametrize("path", sorted(render_admission.rendered()))
def test_policies_that_pin_are_as_their_description_says(path: str) -> None:
    written = (manifests.ROOT / path).read_text("utf-8")
    assert written == render_admission.rendered()[path], ".venv/bin/python -m tools.render_admission"


def test_the_policy_about_schedulers_asks_what_the_program_asks_of_pods_that_are_pinned() -> None:
    policy, binding = manifests.documents("scheduler-name.yaml")
    pin, pinned = manifests.documents("admission.yaml")
    for field in ("failurePolicy", "reinvocationPolicy", "matchConstraints"):
        assert policy["spec"][field] == pin["spec"][field]
    assert binding["spec"] == {**pinned["spec"], "policyName": policy["metadata"]["name"]}
    size, undecided = policy["spec"]["matchConditions"]
    assert [size] == pin["spec"]["matchConditions"]
    assert f"in {list(scheduler_name.OPEN)}" in undecided["expression"]
    asked = re.findall("'([a-z.]+/[^']+)' *[],i]", policy["spec"]["variables"][0]["expression"])
    assert asked == [*names.PINNED, names.NVIDIA_GPU]
    assert f"value: '{names.GPU_SCHEDULER}'" in policy["spec"]["mutations"][0]["jsonPatch"]["expression"]


def test_who_pins_nvidias_resource_leaves_the_namespaces_that_say_so() -> None:
    policy, binding = manifests.documents("admission-nvidia.yaml")
    assert f"'{names.NVIDIA_GPU}'" in _text("MutatingAdmissionPolicy", "admission-nvidia.yaml")
    key, left = pinning.NVIDIA_LEFT
    (expression,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert expression == {"key": key, "operator": "NotIn", "values": [left]}
    assert policy["metadata"]["name"] != manifests.one("admission.yaml", "MutatingAdmissionPolicy")["metadata"]["name"]


def test_accounts_that_run_on_nodes_write_to_their_own_node_only() -> None:
    assert _accounts("node-guard.yaml", "by-a-pod-of-the-node-part") == ON_NODES | ON_ALL_NODES
    rules = manifests.one("node-guard.yaml", "ValidatingAdmissionPolicy")["spec"]["matchConstraints"]["resourceRules"]
    written = {
        (group, resource)
        for granted in manifests.one("node-ds.yaml", "ClusterRole")["rules"]
        for group in granted["apiGroups"]
        for resource in granted["resources"]
        if {"patch", "update"} & set(granted["verbs"])
    }
    written.add(("nfd.k8s-sigs.io", "nodefeatures"))  # in its own namespace, by a role there
    assert {(group, what) for rule in rules for group in rule["apiGroups"] for what in rule["resources"]} == written
    made = ["CREATE", "UPDATE"]  # its GPUNode
    assert [rule["operations"] for rule in rules] == [["UPDATE"], made, [*made, "DELETE"]]


def test_a_container_is_told_its_gpus_by_the_annotation_that_the_binding_writes() -> None:
    spec = _text("MutatingAdmissionPolicy", "admission.yaml")
    assert f"metadata.annotations['{names.VISIBLE_PREFIX}\" + container.end" in spec
    assert {"containers": names.VISIBLE_PREFIX, "initContainers": f"{names.VISIBLE_PREFIX}init-"} == pinning.KINDS
    assert "'kind': 'init-'" in spec
    assert all(f"'{resource}'" in spec for resource in names.PINNED)
    for env in (names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV, "ALIYUN_COM_GPU_MEM_CONTAINER"):
        assert f"'{env}'" in spec


def test_an_mps_share_is_told_what_a_client_needs_by_the_names_that_everybody_uses() -> None:
    spec = _text("MutatingAdmissionPolicy", "admission.yaml")
    for name in (names.MPS_PIPE, names.MPS_LIMIT, names.MPS_PERCENTAGE, names.MPS_THREADS):
        assert f"'{name}'" in spec
    assert f"metadata.annotations['{names.MPS_LIMIT_PREFIX}\" + container.end" in spec
    for volume, folder in mps.FOLDERS:
        assert f"['{volume}', '{folder}']" in spec
    assert spec == _text("MutatingAdmissionPolicy", "admission-nvidia.yaml").replace(
        f"['{names.NVIDIA_GPU}']", str(list(names.PINNED))
    ), "a container that both policies pin must get the same of either"


def test_the_pin_comes_after_everything_else_in_the_env() -> None:
    variables = manifests.one("admission.yaml", "MutatingAdmissionPolicy")["spec"]["variables"]
    (entries,) = (variable["expression"] for variable in variables if variable["name"] == "entries")
    assert re.findall(r"'name': dyn\('([A-Z_]+)'\)", entries)[-1] == names.VISIBLE_DEVICES


@pytest.mark.parametrize(
    "name", ["admission.yaml", "admission-nvidia.yaml", "guard.yaml", "node-guard.yaml", "scheduler-name.yaml"]
)
def test_a_policy_that_cannot_be_evaluated_lets_nothing_through(name: str) -> None:
    policy, binding = manifests.documents(name)
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"].get("validationActions", ["Deny"]) == ["Deny"]


def test_what_users_may_write_is_the_same_to_the_policy_and_to_the_program() -> None:
    spec = manifests.one("validate.yaml", "ValidatingAdmissionPolicy")["spec"]
    says = {variable["name"]: variable["expression"] for variable in spec["variables"]}
    options_of = re.findall(r"\[\['(\S+)'\], \[(.*?)\]\]", says["options"], re.DOTALL)
    known = {key: re.findall("'([^']+)'", words) for key, words in options_of}
    assert known == {names.MEMORY_UNIT: list(names.UNITS), names.POLICY: list(policies.POLICIES)}
    assert f"'{names.MPS_THREADS}'" in says["slots"]
    assert options.NOT_PERCENT.removeprefix(names.MPS_THREADS) in says["slots"]


def _selectors(kind: str) -> dict[str, manifests.Object]:
    """Which namespaces each binding of unasked.yaml means."""
    bindings = (document for document in manifests.documents("unasked.yaml") if document["kind"] == kind)
    return {b["metadata"]["name"]: b["spec"]["matchResources"]["namespaceSelector"] for b in bindings}


def test_who_asks_nothing_gets_nothing_everywhere_but_where_gpu_tools_run() -> None:
    assert _selectors("MutatingAdmissionPolicyBinding") == {
        "gpushare-unasked": {
            "matchExpressions": [
                {"key": unasked.LABEL, "operator": "NotIn", "values": ["void", "leave"]},
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(unasked.SYSTEM)},
            ]
        },
        "gpushare-unasked-labelled": {"matchLabels": {unasked.LABEL: "void"}},
    }
    assert _selectors("ValidatingAdmissionPolicyBinding") == {
        "gpushare-unasked": {"matchExpressions": [{"key": unasked.LABEL, "operator": "NotIn", "values": ["leave"]}]}
    }


def test_every_pod_of_ours_that_sees_all_gpus_is_where_gpu_tools_run() -> None:
    for name in manifests.NAMES:
        for document in manifests.documents(name):
            if document["kind"] == "DaemonSet":
                assert document["metadata"]["namespace"] in unasked.SYSTEM


def test_whatever_is_not_looked_at_because_of_its_size_is_refused() -> None:
    policies = [d for d in manifests.documents("unasked.yaml") if d["kind"].endswith("AdmissionPolicy")]
    assert all(policy["spec"]["failurePolicy"] == "Fail" for policy in policies)
    adds, refuses = (policy["spec"] for policy in policies)
    assert adds["matchConstraints"] == refuses["matchConstraints"]
    (looks,), (allows,) = adds["matchConditions"], refuses["validations"]
    sizes = r"size\((object\.spec\.[^)]*\)?)\) <= (\d+)"
    assert re.findall(sizes, looks["expression"]) == re.findall(sizes, allows["expression"])
    assert len(re.findall(sizes, looks["expression"])) == 3
    assert f"more than {containers.MOST} containers" in allows["message"]
    assert allows["message"] == unasked.TOO_MANY


def test_policy_stand_in_audit_and_guide_mean_the_same_by_asking() -> None:
    policy = manifests.one("unasked.yaml", "MutatingAdmissionPolicy")
    says = {variable["name"]: variable["expression"] for variable in policy["spec"]["variables"]}
    assert re.findall("'([^']+)'", says["ours"]) == list(names.PINNED)
    assert re.findall("'([^']+)'", says["theirs"]) == list(names.NVIDIA_GPUS)
    assert re.findall(r"resource\.startsWith\('([^']+)'\)", says["asks"]) == [names.NVIDIA_SLICES]
    guide = (manifests.ROOT / "docs" / "security.md").read_text("utf-8")
    (listed,) = re.findall(r"\*\*A container asks\*\* if it has a limit above 0 of (.*?)\. ", guide, re.DOTALL)
    every = (*names.PINNED, *names.NVIDIA_GPUS, f"{names.NVIDIA_SLICES}…")
    assert re.findall("`([^`]+)`", listed) == list(every)
