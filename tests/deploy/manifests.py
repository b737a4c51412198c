"""What deploy/ has, as data."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
NAMES = sorted(path.name for path in DEPLOY.glob("*.yaml"))
WITH_EXTENDER = ("extender.yaml", "extender-tls.yaml", "gpu-scheduler.yaml")
EXTENDER = "gpushare-schd-extender"
NODE = "gpushare-node"

Object = dict[str, Any]


def documents(name: str) -> list[Object]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def one(name: str, kind: str, called: str | None = None) -> Object:
    (found,) = (d for d in documents(name) if d["kind"] == kind and called in (None, d["metadata"]["name"]))
    return found


def container(name: str, called: str = EXTENDER) -> Object:
    pod = one(name, "Deployment")["spec"]["template"]["spec"]
    (found,) = (container for container in pod["containers"] if container["name"] == called)
    return dict(found)
