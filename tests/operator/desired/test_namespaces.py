"""What changes in a manifest when it goes into another namespace."""

from gpushare.operator import manifests
from gpushare.operator.desired import namespaces


def moved(file: str, kind: str, name: str) -> dict[str, object]:
    (found,) = (one for one in manifests.load(file) if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return namespaces.moved(found, "elsewhere")


def test_objects_and_subjects_move() -> None:
    assert moved("node-ds.yaml", "DaemonSet", "gpushare-node")["metadata"]["namespace"] == "elsewhere"  # type: ignore[index]
    binding = moved("node-ds.yaml", "ClusterRoleBinding", "gpushare-node")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "gpushare-node", "namespace": "elsewhere"}]
    assert "namespace" not in binding["metadata"]  # type: ignore[operator]


def test_the_right_to_read_what_is_in_kube_system_stays_there_for_an_account_that_moves() -> None:
    for name in ("gpushare-schd-extender", "gpu-scheduler-as-authentication-reader"):
        binding = moved("gpu-scheduler.yaml", "RoleBinding", name)
        assert binding["metadata"]["namespace"] == "kube-system"  # type: ignore[index]
        assert [one["namespace"] for one in binding["subjects"]] == ["elsewhere"]  # type: ignore[attr-defined]
    assert moved("gpu-scheduler.yaml", "Role", "gpushare-schd-extender")["metadata"]["namespace"] == "kube-system"  # type: ignore[index]


def test_the_lease_of_the_second_scheduler_moves_with_its_rights() -> None:
    assert moved("gpu-scheduler.yaml", "Role", "gpu-scheduler")["metadata"]["namespace"] == "elsewhere"  # type: ignore[index]
    config = moved("gpu-scheduler.yaml", "ConfigMap", "gpu-scheduler")["data"]["config.yaml"]  # type: ignore[index]
    assert "resourceNamespace: elsewhere\n" in config


def test_accounts_in_expressions_move() -> None:
    text = "'system:serviceaccount:kube-system:gpushare-node' in ['system:serviceaccount:gpu:scheduler']"
    made = namespaces.moved({"kind": "X", "metadata": {"name": "x"}, "spec": {"deep": [{"expression": text}]}}, "mine")
    assert made["spec"]["deep"][0]["expression"] == text.replace("kube-system", "mine")


def test_a_namespace_that_is_only_spoken_of_stays() -> None:
    made = namespaces.moved({"kind": "X", "metadata": {"name": "x"}, "values": ["kube-system"]}, "mine")
    assert made["values"] == ["kube-system"]
