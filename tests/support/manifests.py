"""What deploy/ has, as data."""

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare import cli
from gpushare.gpu.device import Backend
from gpushare.kube.auth import login
from gpushare.node import app

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


def node_config(words: list[str], monkeypatch: pytest.MonkeyPatch) -> app.Config:
    """What the command line makes of these words, on a node called gpu-a."""
    seen: list[app.Config] = []

    async def run(config: app.Config, access: login.Access, backend: Backend) -> signal.Signals:
        seen.append(config)
        return signal.SIGTERM

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(login, "load", lambda *_: login.Access(server="https://127.0.0.1:6443"))
    monkeypatch.setenv("NODE_NAME", "gpu-a")
    assert cli.main(words) == 0
    (config,) = seen
    return config
