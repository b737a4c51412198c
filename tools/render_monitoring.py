"""Writes deploy/monitoring: alerts, boards and scrape configurations, from the tables in `tools/monitoring`.

Run it after a change: `.venv/bin/python -m tools.render_monitoring`. A test compares what it would write with what is
there.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from tools.monitoring import boards, grafana, rules, scraping
from tools.monitoring.rules import Rule

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "deploy/monitoring"
RUNBOOK = "docs/metrics.md"
HEADER = "# Written by tools/render_monitoring.py: change tools/monitoring, and run it.\n"
ABOUT_RULES = f"""\
# runbook_url names a heading of {RUNBOOK} in this repository. To have links that people can follow, put in front the
# address where you keep it:
#   sed -i 's|runbook_url: |&https://YOUR-GIT-HOST/gpushare/blob/main/|' FILE
"""
ABOUT = {
    "rules.yaml": "# The alerts for a Prometheus of your own: rule_files in its configuration names this file.\n",
    "prometheusrule.yaml": "# The alerts for the Prometheus Operator: kubectl apply -f this file.\n",
}
LABELS = {"app": "gpushare", "component": "gpushare-monitoring"}


def rendered() -> dict[str, str]:
    """By path, what each file says."""
    files = {
        "rules.yaml": HEADER + ABOUT["rules.yaml"] + ABOUT_RULES + _yaml(groups()),
        "prometheusrule.yaml": HEADER + ABOUT["prometheusrule.yaml"] + ABOUT_RULES + _yaml(_prometheus_rule()),
    }
    files |= {name: HEADER + text for name, text in scraping.FILES.items()}
    files |= {
        f"boards/{board.file}.json": json.dumps(grafana.board(board), indent=1, ensure_ascii=False) + "\n"
        for board in boards.ALL
    }
    return {f"{FOLDER}/{name}": text for name, text in files.items()}


def groups() -> dict[str, Any]:
    """All alerts, as Prometheus reads them."""
    return {
        "groups": [{"name": name, "rules": [_rule(rule) for rule in table]} for name, table in rules.GROUPS.items()]
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "alert": rule.name,
        "expr": rule.expression,
        **({"for": rule.lasts} if rule.lasts else {}),
        "labels": {"severity": rule.severity, "app": "gpushare"},
        "annotations": {
            "summary": rule.summary,
            "description": rule.todo,
            "runbook_url": f"{RUNBOOK}#{rule.name.lower()}",
        },
    }


def _prometheus_rule() -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "gpushare", "namespace": scraping.NAMESPACE, "labels": LABELS},
        "spec": groups(),
    }


class _Plain(yaml.SafeDumper):
    """Texts of several lines are written as several lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def _yaml(content: object) -> str:
    return yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=160)


if __name__ == "__main__":
    for path, text in rendered().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, "utf-8")
