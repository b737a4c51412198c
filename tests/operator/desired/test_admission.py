"""What a policy asks of admission, as objects: policies or the webhook, with the same choices, in any namespace."""

import json
import re

import pytest

from gpushare.core.admission import guard, unasked
from gpushare.operator import manifests
from gpushare.operator.desired import admission
from gpushare.operator.desired.component import Cluster, Component, Object
from gpushare.operator.desired.policy import Admission, Scheduler, Spec

NEW = Cluster("gpu-operator", (1, 36), "v1.36.4", "registry/gpushare:1", kinds=frozenset({admission.POLICIES}))
OLD = NEW._replace(version=(1, 35), kinds=frozenset())
ALWAYS = {"gpushare-pin", "gpushare-guard", "gpushare-own-node", "gpushare-validate"}
SECOND = "gpushare-scheduler-name"


def built(spec: Spec, cluster: Cluster = NEW) -> Component:
    return admission.build(spec, cluster, manifests.load)


def names(component: Component) -> set[str]:
    return {one["metadata"]["name"] for one in component.objects}


def kinds(component: Component) -> set[str]:
    return {one["kind"] for one in component.objects}


def args(component: Component) -> list[str]:
    (workload,) = (one for one in component.objects if one["kind"] == "Deployment")
    words: list[str] = workload["spec"]["template"]["spec"]["containers"][0]["args"]
    return words


def test_by_default_a_new_cluster_gets_policies_and_no_pod_of_ours() -> None:
    made = built(Spec())
    assert (made.name, made.enabled, made.unserved) == ("admission", True, "")
    assert names(made) == {*ALWAYS, SECOND}
    assert all(re.fullmatch("(Mutating|Validating)AdmissionPolicy(Binding)?", kind) for kind in kinds(made))


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        (Spec(scheduler=Scheduler(enabled=False)), set()),
        (Spec(scheduler=Scheduler(mode="extender")), set()),
        (Spec(scheduler=Scheduler(assign_pods=False)), set()),
        (Spec(admission=Admission(nvidia_gpu="whole")), {SECOND, "gpushare-pin-nvidia"}),
        (Spec(admission=Admission(unasked="void")), {SECOND, "gpushare-unasked", "gpushare-unasked-labelled"}),
        (Spec(admission=Admission(mode="policies")), {SECOND}),
    ],
)
def test_each_choice_brings_its_policy(spec: Spec, more: set[str]) -> None:
    assert names(built(spec)) == ALWAYS | more


@pytest.mark.parametrize(
    ("spec", "flags"),
    [
        (Spec(), ["--scheduler-name", "gpu-scheduler"]),
        (Spec(scheduler=Scheduler(enabled=False)), []),
        (Spec(scheduler=Scheduler(mode="extender"), admission=Admission(args=("--log-level", "debug"))),
         ["--log-level", "debug"]),
        (Spec(admission=Admission(nvidia_gpu="whole", unasked="void")),
         ["--nvidia-gpu", "whole", "--unasked", "void", "--scheduler-name", "gpu-scheduler"]),
    ],
)  # fmt: skip
def test_an_older_cluster_gets_the_webhook_with_the_same_choices_as_flags(spec: Spec, flags: list[str]) -> None:
    assert args(built(spec, OLD)) == ["webhook", *flags]


def test_the_webhook_can_be_wanted_where_policies_would_do() -> None:
    made = built(Spec(admission=Admission(mode="webhook", version="2", image_pull_secrets=("key",))))
    (workload,) = (one for one in made.objects if one["kind"] == "Deployment")
    assert workload["spec"]["template"]["spec"]["containers"][0]["image"] == "registry/gpushare:2"
    assert workload["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "key"}]
    assert "MutatingAdmissionPolicy" not in kinds(made)
    assert "gpushare-own-node" in names(made), "the webhook does not do that"


def test_what_needs_tokens_that_name_nodes_is_left_out_before_them() -> None:
    assert "gpushare-own-node" in names(built(Spec(), OLD._replace(version=(1, 32))))
    assert "gpushare-own-node" not in names(built(Spec(), OLD._replace(version=(1, 31))))


def test_policies_on_a_cluster_without_them_are_said_not_to_be_served() -> None:
    made = built(Spec(admission=Admission(mode="policies")), OLD)
    assert made.objects == ()
    assert "Kubernetes 1.36" in made.unserved


def test_an_image_without_a_version_is_said_and_switched_off_there_is_nothing() -> None:
    assert "admission.image is x" in built(Spec(admission=Admission(image="x")), OLD).unserved
    assert built(Spec(admission=Admission(enabled=False))) == Component("admission", enabled=False)


def expressions(made: Component, name: str) -> str:
    (policy,) = (o for o in made.objects if o["metadata"]["name"] == name and not o["kind"].endswith("Binding"))
    return json.dumps(policy["spec"])


@pytest.mark.parametrize("namespace", ["gpu-operator", "gpu", "gpushare-system"])
def test_the_guard_trusts_whom_the_webhook_trusts_in_this_namespace(namespace: str) -> None:
    made = built(Spec(), NEW._replace(namespace=namespace))
    named = set(re.findall(r"system:serviceaccount:[^']+", expressions(made, "gpushare-guard")))
    trusted = guard.writers(namespace)
    assert named == {*trusted.all, *trusted.also.values()}
    of_nodes = set(re.findall(r"system:serviceaccount:[^']+", expressions(made, "gpushare-own-node")))
    assert {account.split(":")[2] for account in of_nodes} == {namespace}


def test_in_kube_system_the_policies_are_as_shipped() -> None:
    made = built(Spec(admission=Admission(unasked="void")), NEW._replace(namespace="kube-system"))
    for file in ("guard.yaml", "node-guard.yaml", "unasked.yaml"):
        assert all(one in made.objects for one in manifests.load(file))


@pytest.mark.parametrize("namespace", ["gpu-operator", "elsewhere"])
def test_pods_of_its_own_namespace_see_their_gpus(namespace: str) -> None:
    made = built(Spec(admission=Admission(unasked="void")), NEW._replace(namespace=namespace))
    (binding,) = (o for o in made.objects if _is_unasked(o) and "matchExpressions" in _selector(o))
    (left,) = (e["values"] for e in _selector(binding)["matchExpressions"] if e["key"] == admission.OWN_NAME)
    assert left == list(dict.fromkeys((*unasked.SYSTEM, namespace)))


def _is_unasked(one: Object) -> bool:
    return (one["kind"], one["metadata"]["name"]) == ("MutatingAdmissionPolicyBinding", "gpushare-unasked")


def _selector(one: Object) -> Object:
    found: Object = one["spec"].get("matchResources", {}).get("namespaceSelector", {})
    return found


@pytest.mark.parametrize("spec", [Spec(), Spec(admission=Admission(mode="webhook"))])
def test_nothing_of_it_is_in_kube_system(spec: Spec) -> None:
    assert "kube-system" not in json.dumps(built(spec).objects)
