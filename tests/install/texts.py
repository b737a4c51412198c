"""Manifests for the tests of `gpushare install-scheduler`: those of kubeadm, and ways to change them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gpushare.install import plan
from gpushare.install.plan import Plan

Object = dict[str, Any]
DATA = Path(__file__).parent / "data"
VERSIONS = ("1.22", "1.23", "1.25", "1.28", "1.36")
NAME = "/etc/kubernetes/manifests/kube-scheduler.yaml"
URL = "http://127.0.0.1:12345/gpushare-scheduler"
MINE = "/etc/kubernetes/mine.yaml"


def kubeadm(version: str = "1.36") -> bytes:
    return (DATA / f"kubeadm-{version}.yaml").read_bytes()


def changed(change: Callable[[Object, Object], None], version: str = "1.36") -> bytes:
    """kubeadm's manifest after a change of the pod, given with its container."""
    pod = yaml.safe_load(kubeadm(version))
    change(pod, pod["spec"]["containers"][0])
    return yaml.safe_dump(pod, sort_keys=False).encode()


def with_flags(*flags: str, version: str = "1.36") -> bytes:
    return changed(lambda _, container: container["command"].extend(flags), version)


def configured(flag: str = "--config", version: str = "1.36") -> bytes:
    """A scheduler that has a configuration already, at MINE."""

    def change(pod: Object, container: Object) -> None:
        container["command"].append(f"{flag}={MINE}")
        container["volumeMounts"].append({"name": "mine", "mountPath": MINE, "readOnly": True})
        pod["spec"]["volumes"].append({"name": "mine", "hostPath": {"path": MINE, "type": "File"}})

    return changed(change, version)


def configuration(version: str = "v1", **more: Any) -> Object:
    return {
        "apiVersion": f"kubescheduler.config.k8s.io/{version}",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        **more,
    }


def made(text: bytes, existing: Object | bytes | None = None, *, url: str = URL, version: str = "") -> Plan:
    """`existing`: what is in MINE."""

    def read(path: str) -> bytes:
        assert path == MINE
        return existing if isinstance(existing, bytes) else yaml.safe_dump(existing).encode()

    return plan.made(text, NAME, url, read, version)
