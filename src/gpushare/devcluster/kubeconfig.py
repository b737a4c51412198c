"""Writes the kubeconfig with which a client finds the embedded API server or the fault proxy."""

import os
from pathlib import Path

import msgspec


def write(path: str | os.PathLike[str], server: str, token: str | None = None) -> Path:
    """A kubeconfig (JSON is YAML) with one cluster, one user and one context, readable by its owner only."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "devcluster", "cluster": {"server": server}}],
        "users": [{"name": "devcluster", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "devcluster", "context": {"cluster": "devcluster", "user": "devcluster"}}],
        "current-context": "devcluster",
    }
    file = Path(path)
    file.touch(mode=0o600)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
    return file
