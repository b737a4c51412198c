"""What deploy/ has, as data."""

import signal
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from gpushare import cli
from gpushare.extender import app as extender
from gpushare.gpu.device import Backend
from gpushare.kube.auth import login
from gpushare.kube.scraping.server import Listening
from gpushare.node import app, observer
from gpushare.node.collector import app as collecting
from gpushare.node.exporter import exporter
from gpushare.node.nvidia import app as selling
from tests.support import yaml_text

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
NAMES = sorted(path.name for path in DEPLOY.glob("*.yaml"))
WITH_EXTENDER = ("extender.yaml", "extender-tls.yaml", "gpu-scheduler.yaml")
EXTENDER = "gpushare-schd-extender"
NODE = "gpushare-node"

Object = dict[str, Any]


def documents(name: str) -> list[Object]:
    return yaml_text.documents((DEPLOY / name).read_text("utf-8"))


def one(name: str, kind: str, called: str | None = None) -> Object:
    (found,) = (d for d in documents(name) if d["kind"] == kind and called in (None, d["metadata"]["name"]))
    return found


def container(name: str, called: str = EXTENDER) -> Object:
    pod = one(name, "Deployment")["spec"]["template"]["spec"]
    (found,) = (container for container in pod["containers"] if container["name"] == called)
    return dict(found)


# What is read of POD_IP: where Prometheus is answered.
POD_IP = "192.0.2.7"
OBSERVING = observer.Config(exporter=exporter.Config(Listening(POD_IP, 9400)))


def node_config(words: list[str], monkeypatch: pytest.MonkeyPatch) -> app.Config:
    """What the command line makes of these words, on a node called gpu-a."""
    return cast(app.Config, _config(app, words, monkeypatch))


def selling_config(words: list[str], monkeypatch: pytest.MonkeyPatch) -> selling.Config:
    """The same for `--sell=gpus`."""
    return cast(selling.Config, _config(selling, words, monkeypatch))


def collector_config(words: list[str], monkeypatch: pytest.MonkeyPatch) -> collecting.Config:
    """The same for the collector."""
    return cast(collecting.Config, _config(collecting, words, monkeypatch))


def extender_config(words: list[str], monkeypatch: pytest.MonkeyPatch) -> extender.Config:
    """The same for the extender. `$(POD_IP)` is read as kubelet does."""
    monkeypatch.delenv("PORT", raising=False)
    expanded = [word.replace("$(POD_IP)", POD_IP) for word in words]
    return cast(extender.Config, _config(extender, expanded, monkeypatch))


def _config(component: ModuleType, words: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    seen: list[object] = []

    async def run(config: object, access: login.Access, backend: Backend | None = None) -> signal.Signals:
        seen.append(config)
        return signal.SIGTERM

    monkeypatch.setattr(component, "run", run)
    monkeypatch.setattr(login, "load", lambda *_: login.Access(server="https://127.0.0.1:6443"))
    monkeypatch.setenv("NODE_NAME", "gpu-a")
    monkeypatch.setenv("POD_IP", POD_IP)
    assert cli.main(words) == 0
    (config,) = seen
    return config
