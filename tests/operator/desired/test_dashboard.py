"""The dashboard: off unless somebody switches it on, and then in the namespace and with the image of the operator."""

from tests.support import policies

ON = {"dashboard": {"enabled": True}}


def test_it_is_off_unless_somebody_switches_it_on() -> None:
    made = policies.desired({})["dashboard"]
    assert (made.enabled, made.objects) == (False, ())


def test_it_runs_where_the_operator_runs_with_its_image() -> None:
    workload = policies.one(ON, "Deployment", "gpushare-dashboard")
    assert workload["metadata"]["namespace"] == policies.NAMESPACE
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert container["image"] == policies.CLUSTER.image
    assert container["args"][:2] == ["dashboard", "--in-cluster"]


def test_its_account_may_read_and_ask_who_somebody_is_and_nothing_else() -> None:
    roles = [one for one in policies.desired(ON)["dashboard"].objects if one["kind"] in ("ClusterRole", "Role")]
    rules = [rule for role in roles for rule in role["rules"]]
    assert rules
    for rule in rules:
        reviews = set(rule.get("resources", ())) <= {"tokenreviews", "subjectaccessreviews"}
        assert set(rule["verbs"]) <= ({"create"} if reviews else {"get", "list", "watch"}), rule


def test_what_a_policy_says_about_its_image_and_words_counts() -> None:
    said = {"dashboard": {"enabled": True, "version": "v9", "args": ["--prometheus", "http://prometheus:9090"]}}
    (container,) = policies.one(said, "Deployment", "gpushare-dashboard")["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":v9")
    assert container["args"][-2:] == ["--prometheus", "http://prometheus:9090"]
