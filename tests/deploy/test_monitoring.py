"""Alerts, boards and scrape configurations: written from one description, and about metrics that there are."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.harness import alert_cases
from tests.support import links, manifests
from tools import render_monitoring
from tools.monitoring import boards, grafana, rules
from tools.monitoring.boards import Board, Panel
from tools.monitoring.rules import Rule

FOLDER = manifests.DEPLOY / "monitoring"
KETI = ("keti/deployments/gpu-scheduler.yaml", "keti/deployments/metric-collector.yaml")
DOCUMENT = (manifests.ROOT / render_monitoring.RUNBOOK).read_text("utf-8")
METRIC = re.compile(r"\b(?:gpushare|DCGM_FI)_[A-Za-z0-9_]+")
OF_A_HISTOGRAM = re.compile(r"(?<=_seconds)_(?:bucket|count|sum)$")
BUILT_IN = {"__range", "__rate_interval"}  # variables that Grafana has itself
PANELS = [(board, panel) for board in boards.ALL for panel in board.panels]


def named(value: object) -> str:
    return value.name if isinstance(value, Rule) else value.title if isinstance(value, Board | Panel) else ""


def documented() -> set[str]:
    """Metrics that have a line in a table of docs/metrics.md."""
    return set(re.findall(r"^\| `([A-Za-z_0-9]+)` \|", DOCUMENT, re.MULTILINE))


def metrics_in(*expressions: str) -> set[str]:
    return {OF_A_HISTOGRAM.sub("", name) for text in expressions for name in METRIC.findall(text)}


def expressions(board: Board) -> Iterator[str]:
    return (query.expression for panel in board.panels for query in panel.queries)


@pytest.mark.parametrize("path", sorted(render_monitoring.rendered()))
def test_the_file_is_what_would_be_written(path: str) -> None:
    written = (manifests.ROOT / path).read_text("utf-8")
    assert written == render_monitoring.rendered()[path], ".venv/bin/python -m tools.render_monitoring"


def test_no_other_file_is_there() -> None:
    shipped = {str(path.relative_to(manifests.ROOT)) for path in FOLDER.rglob("*") if path.is_file()}
    assert shipped == set(render_monitoring.rendered())


@pytest.mark.parametrize("rule", rules.ALL, ids=named)
def test_every_alert_says_what_is_wrong_what_to_do_and_where_more_is_written(rule: Rule) -> None:
    (written,) = (
        r for group in render_monitoring.groups()["groups"] for r in group["rules"] if r["alert"] == rule.name
    )
    assert written["labels"]["severity"] in {"critical", "warning", "info"}
    assert written["annotations"]["summary"].endswith(".")
    assert written["annotations"]["description"].endswith(".")
    file, _, anchor = written["annotations"]["runbook_url"].partition("#")
    assert anchor in links.anchors((manifests.ROOT / file).read_text("utf-8"))


@pytest.mark.parametrize("rule", rules.ALL, ids=named)
def test_the_document_says_how_urgent_an_alert_is_and_when_it_comes(rule: Rule) -> None:
    section = DOCUMENT.partition(f"### {rule.name}\n\n")[2]
    number, unit = re.fullmatch(r"(\d+)([mh])", rule.lasts).groups() if rule.lasts else ("", "")  # type: ignore[union-attr]
    word = {"m": "minute", "h": "hour", "": ""}[unit] + "s" * (number not in ("", "1"))
    when = f"after {number} {word}" if rule.lasts else "at once"
    assert section.startswith(f"{rule.severity.capitalize()}, {when}. ")


def test_both_forms_of_the_rules_are_the_same() -> None:
    (plain,) = yaml.safe_load_all((FOLDER / "rules.yaml").read_text("utf-8"))
    (for_operator,) = yaml.safe_load_all((FOLDER / "prometheusrule.yaml").read_text("utf-8"))
    assert for_operator["spec"] == plain


def test_every_alert_is_tried_both_ways() -> None:
    all_of_them = [rule.name for rule in rules.ALL]
    assert sorted(case.alert for case in alert_cases.FIRES) == sorted(all_of_them)
    assert {case.alert for case in alert_cases.SILENT} == set(all_of_them)


@pytest.mark.parametrize("rule", rules.ALL, ids=named)
def test_every_metric_of_an_alert_is_documented(rule: Rule) -> None:
    assert metrics_in(rule.expression) - documented() == set()


@pytest.mark.parametrize("board", boards.ALL, ids=named)
def test_every_metric_of_a_board_is_documented(board: Board) -> None:
    assert metrics_in(*expressions(board), *grafana.VALUES_OF.values()) - documented() == set()


@pytest.mark.parametrize("board", boards.ALL, ids=named)
def test_a_board_knows_the_variables_that_its_queries_name(board: Board) -> None:
    used = {name for text in expressions(board) for name in re.findall(r"\$(\w+)", text)} - BUILT_IN
    assert used == set(board.variables)


def test_unknown_is_never_shown_as_0() -> None:
    made_up = re.compile(r"\bvector\b|\bor\b")
    known = {boards.WAITING}  # 0 only while the extender counts
    assert {text for board in boards.ALL for text in expressions(board) if made_up.search(text)} == known
    for board, panel in PANELS:
        (drawn,) = (p for p in grafana.board(board)["panels"] if p["title"] == panel.title)
        assert drawn["fieldConfig"]["defaults"].get("custom", {}).get("spanNulls", False) is False


@pytest.mark.parametrize("board", boards.ALL, ids=named)
def test_panels_do_not_overlap_and_ask_the_chosen_data_source(board: Board) -> None:
    drawn = json.loads((FOLDER / "boards" / f"{board.file}.json").read_text("utf-8"))
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in drawn["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < grafana.COLUMNS
    assert {target["datasource"]["uid"] for panel in drawn["panels"] for target in panel["targets"]} == {
        "${datasource}"
    }
    assert {variable["name"] for variable in drawn["templating"]["list"]} == {"datasource", *board.variables}


def monitors() -> list[manifests.Object]:
    documents = yaml.safe_load_all((FOLDER / "podmonitor.yaml").read_text("utf-8"))
    return [document for document in documents if document["kind"] == "PodMonitor"]


def with_a_port_for_prometheus() -> dict[str, dict[str, str]]:
    """By manifest, the labels of the pods."""
    pods = {
        name: document["spec"]["template"]
        for name in (*manifests.NAMES, *KETI)
        for document in manifests.documents(name)
        if "template" in document.get("spec", {})
    }
    return {
        name: pod["metadata"]["labels"]
        for name, pod in pods.items()
        if "metrics" in (port["name"] for one in pod["spec"]["containers"] for port in one.get("ports", ()))
    }


def test_the_operator_looks_where_all_of_them_are() -> None:
    for monitor in monitors():
        assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["kube-system", "gpu"]}


def test_everything_with_a_port_for_prometheus_is_scraped_by_exactly_one_job() -> None:
    (config,) = yaml.safe_load_all((FOLDER / "scrape-config.yaml").read_text("utf-8"))
    kept = {job["job_name"]: job["relabel_configs"][0]["regex"] for job in config["scrape_configs"]}
    selected = {monitor["metadata"]["name"]: monitor["spec"]["selector"] for monitor in monitors()}
    scheduler, collector = KETI
    nodes = ("node-ds.yaml", "nvidia-ds.yaml", "device-plugin-ds.yaml", collector)
    extenders = (*manifests.WITH_EXTENDER, scheduler)
    wanted = dict.fromkeys(nodes, "gpushare-node") | dict.fromkeys(extenders, "gpushare-extender")
    found = with_a_port_for_prometheus()
    assert set(found) == set(wanted)
    for name, labels in found.items():
        component = labels["component"]
        assert [job for job, regex in kept.items() if re.fullmatch(regex, f"{component};metrics")] == [wanted[name]]
        assert [
            job
            for job, selector in selected.items()
            if selector["matchLabels"].items() <= labels.items()
            and component in selector["matchExpressions"][0]["values"]
        ] == [wanted[name]]


def test_nothing_makes_a_figure_look_as_if_it_were_of_the_pod_that_exports_it() -> None:
    """Neither Prometheus' own names nor those of the Operator become labels of a target."""
    (config,) = yaml.safe_load_all((FOLDER / "scrape-config.yaml").read_text("utf-8"))
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert set(jobs) == {"gpushare-node", "gpushare-extender"}
    assert all(job["honor_labels"] is True for job in jobs.values())
    targets = {rule.get("target_label") for job in jobs.values() for rule in job["relabel_configs"]}
    assert targets <= {None, "node"}
    for monitor in monitors():
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        job = {"action": "replace", "targetLabel": "job", "replacement": monitor["metadata"]["name"]}
        assert job in endpoint["relabelings"]
        assert endpoint["honorLabels"] is True
        dropped = endpoint["relabelings"][-1]
        assert dropped["action"] == "labeldrop"
        assert all(re.fullmatch(dropped["regex"], label) for label in ("namespace", "pod", "container", "endpoint"))


def test_who_may_read_metrics_may_do_nothing_else() -> None:
    reader = manifests.one("view-rbac.yaml", "ClusterRole", "gpushare-metrics")
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
