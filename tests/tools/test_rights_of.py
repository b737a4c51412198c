"""Rights of objects are counted as the API server counts them."""

from tests.support import rights_of


def test_rules_are_taken_apart() -> None:
    rules = [
        {"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]
    assert rights_of.granted([{"kind": "Role", "rules": rules}, {"kind": "Pod"}]) == {
        ("", "pods", "", "get"), ("apps", "pods", "", "get"), ("", "secrets", "a", "get"), ("", "secrets", "b", "get"),
        ("", "/metrics", "", "get"),
    }  # fmt: skip


def test_roles_of_others_are_told_apart() -> None:
    binding = {"kind": "RoleBinding", "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "system:x"}}
    own = {"kind": "Role", "metadata": {"name": "mine"}, "rules": []}
    mine = {"kind": "RoleBinding", "metadata": {"name": "c"}, "roleRef": {"kind": "Role", "name": "mine"}}
    assert rights_of.bound_elsewhere([binding, own, mine]) == {("ClusterRole", "system:x")}
