"""Reads kubeconfig files, merges them as kubectl does, and picks one context.

Every entry remembers its file: paths in it are relative to that file, and an error names the file to repair.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import msgspec
import yaml

from gpushare.kube.errors import NoAccess


class Cluster(msgspec.Struct, rename="kebab", omit_defaults=True):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class ExecVariable(msgspec.Struct):
    name: str
    value: str = ""


class Exec(msgspec.Struct, rename="camel"):
    """A program that prints credentials."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False


class User(msgspec.Struct, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: Exec | None = None


class Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class NamedCluster(msgspec.Struct):
    name: str
    cluster: Cluster | None = None


class NamedUser(msgspec.Struct):
    name: str
    user: User | None = None


class NamedContext(msgspec.Struct):
    name: str
    context: Context | None = None


class File(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None


@dataclass
class Merged:
    """All files together: of equal names the first one wins, as with kubectl."""

    source: str
    current: str = ""
    clusters: dict[str, tuple[Cluster, Path]] = field(default_factory=dict)
    users: dict[str, tuple[User, Path]] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """What one context says, and which files its cluster and its user come from."""

    context: str
    namespace: str
    cluster: Cluster
    cluster_file: Path
    user_name: str
    user: User
    user_file: Path


def shown(path: Path, home: Path) -> str:
    """A path as people write it."""
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def merge(paths: Sequence[Path], home: Path) -> Merged:
    merged = Merged(source=", ".join(shown(path, home) for path in paths))
    for path in paths:
        file = _read(path, shown(path, home))
        merged.current = merged.current or file.current_context or ""
        for cluster in file.clusters or ():
            merged.clusters.setdefault(cluster.name, (cluster.cluster or Cluster(), path))
        for user in file.users or ():
            merged.users.setdefault(user.name, (user.user or User(), path))
        for context in file.contexts or ():
            merged.contexts.setdefault(context.name, context.context or Context())
    return merged


def choose(merged: Merged, wanted: str | None) -> Choice:
    """The wanted context, or the current one."""
    name = wanted or merged.current
    if not name:
        _no_context(f"no current context in {merged.source}", merged)
    context = merged.contexts.get(name)
    if context is None:
        _no_context(f'no context "{name}" in {merged.source}', merged)
    if context.cluster not in merged.clusters:
        _dangling(name, "cluster", context.cluster, merged.clusters, merged.source)
    if context.user and context.user not in merged.users:
        _dangling(name, "user", context.user, merged.users, merged.source)
    cluster, cluster_file = merged.clusters[context.cluster]
    user, user_file = merged.users.get(context.user, (User(), cluster_file))
    return Choice(name, context.namespace or "default", cluster, cluster_file, context.user, user, user_file)


def material(data: str | None, path: str | None, file: Path, what: str, home: Path) -> bytes | None:
    """The bytes of a certificate or key, from the kubeconfig itself or else from the file it names."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            source = shown(file, home)
            raise NoAccess(f"{what} in {source} cannot be read", "it is not base64", f"repair {source}") from None
    if path:
        try:
            return (file.parent / path).read_bytes()
        except OSError as error:
            raise NoAccess(
                f"{what} cannot be read: {file.parent / path}",
                f"{error.strerror} (named in {shown(file, home)})",
                "correct the path, or get a new kubeconfig",
            ) from None
    return None


def _read(path: Path, name: str) -> File:
    way = "see what is in it: kubectl config view --kubeconfig " + name
    try:
        text = path.read_text("utf-8")
        parsed = yaml.safe_load(text)
        return msgspec.convert(parsed, File) if parsed is not None else File()
    except OSError as error:
        raise NoAccess(f"kubeconfig cannot be read: {name}", str(error.strerror), "--kubeconfig FILE") from None
    except yaml.MarkedYAMLError as error:
        # The text of the error quotes the line, which may contain a token.
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise NoAccess(f"kubeconfig is not YAML: {name}", f"{line}{error.problem}", way) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise NoAccess(f"kubeconfig is not YAML: {name}", "it contains characters that are not text", way) from None
    except msgspec.ValidationError as error:
        raise NoAccess(f"kubeconfig is not valid: {name}", str(error), way) from None


def _no_context(what: str, merged: Merged) -> NoReturn:
    names = sorted(merged.contexts)
    raise NoAccess(
        what,
        f"contexts there: {', '.join(names)}" if names else "there are no contexts there",
        f"--context {names[0]}" if names else "--kubeconfig FILE",
    )


def _dangling(context: str, kind: str, name: str, known: Iterable[str], source: str) -> NoReturn:
    raise NoAccess(
        f'context "{context}" names {kind} "{name}", which is not in {source}',
        f"{kind}s there: {', '.join(sorted(known)) or 'none'}",
        "correct the context, or use another one: --context NAME",
    )
