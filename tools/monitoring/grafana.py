"""A board of `boards` as the JSON that Grafana 10 and later imports."""

from typing import Any, Final

from tools.monitoring.boards import Board, Panel, Variable

SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS: Final = 24
HEIGHTS: Final = {"stat": 4, "timeseries": 8, "table": 10, "bargauge": 8}
VALUES_OF: Final[dict[Variable, str]] = {
    "node": "label_values(gpushare_gpu_healthy, node)",
    "namespace": "label_values(gpushare_container_memory_granted_bytes, namespace)",
}
LINES: Final = {"lineWidth": 1, "showPoints": "never", "spanNulls": False}  # where nothing is known, there is a gap
Json = dict[str, Any]


def board(made: Board) -> Json:
    return {
        "uid": f"gpushare-{made.file}",
        "title": made.title,
        "tags": ["gpushare"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [{"type": "dashboards", "title": "gpushare", "tags": ["gpushare"], "keepTime": True}],
        "templating": {"list": [_datasource(), *(_variable(name) for name in made.variables)]},
        "panels": _panels(made.panels),
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(name: Variable) -> Json:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": VALUES_OF[name], "refId": name},
        "refresh": 2,  # when the time shown changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels(panels: tuple[Panel, ...]) -> list[Json]:
    """From left to right, and on the next line where the width is used up."""
    made, x, y, height = list[Json](), 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        place = {"x": x, "y": y, "w": panel.width, "h": HEIGHTS[panel.kind]}
        made.append({"id": number, "gridPos": place, **_panel(panel)})
        x, height = x + panel.width, max(height, HEIGHTS[panel.kind])
    return made


def _panel(panel: Panel) -> Json:
    return {
        "type": panel.kind,
        "title": panel.title,
        **({"description": panel.about} if panel.about else {}),
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, **_look(panel)}, "overrides": []},
        **_options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                **_asked(panel),
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _look(panel: Panel) -> Json:
    if panel.kind != "timeseries":
        return {}
    stacking = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 30} if panel.stacked else {}
    return {"min": 0, "custom": LINES | stacking}


def _asked(panel: Panel) -> Json:
    """Lines need the time shown; everything else needs only now."""
    if panel.kind == "timeseries":
        return {"range": True}
    return {"instant": True, "format": "table" if panel.kind == "table" else "time_series"}


def _options(panel: Panel) -> Json:
    if panel.kind == "timeseries":
        return {"options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi", "sort": "desc"}}}
    if panel.kind == "table":
        # One line for each set of labels, with a column for each query, named by its legend.
        names = {f"Value #{chr(ord('A') + number)}": query.legend for number, query in enumerate(panel.queries)}
        names["Value"] = panel.queries[0].legend  # how Grafana calls it if there is but one
        hidden = dict.fromkeys(("Time", "__name__", "instance", "job", "UUID", "pod_uid"), True)
        organize = {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names}}
        return {"transformations": [{"id": "merge", "options": {}}, organize]}
    orientation = {"orientation": "horizontal"} if panel.kind == "bargauge" else {}
    return {"options": {"reduceOptions": {"calcs": ["lastNotNull"]}, **orientation}}
