"""Where the API server is, who we are, and how we prove it.

Looked for in this order: the file named by --kubeconfig, the files in KUBECONFIG, ~/.kube/config, and the service
account of the pod we run in.
"""

import base64
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gpushare.kube.auth import configfile, credentials, tls
from gpushare.kube.errors import NoAccess

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_POD = "the pod's service account"  # the source of an Access without a kubeconfig

NO_KUBECONFIG = "no kubeconfig found"
NO_KUBECONFIG_WAY = "export KUBECONFIG=FILE, or gpushare demo to try it without a cluster"
NEW_KUBECONFIG = "get a new kubeconfig from your admin"
RENEW = NEW_KUBECONFIG + "; on kubeadm: kubeadm certs renew admin.conf"


@dataclass
class Access:
    """How to reach one API server. Each request calls `headers` first, and then reads `ssl`."""

    server: str
    namespace: str = "default"
    context: str = ""  # empty inside a pod
    user: str = ""
    source: str = ""  # the kubeconfig's path as people write it
    server_name: str | None = None
    proxy: str | None = None
    credential: credentials.Credential = field(default_factory=lambda: credentials.Fixed(None), repr=False)
    ca: bytes | None = field(default=None, repr=False)
    insecure: bool = False
    read_pair: Callable[[], tls.Pair | None] = field(default=lambda: None, repr=False)
    now: Callable[[], float] = field(default=time.time, repr=False)

    def __post_init__(self) -> None:
        self._ssl: ssl.SSLContext | None = None
        self._use(self.read_pair())

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """A new object once the client certificate changed: connections made with the old one are not used again."""
        return self._ssl

    async def headers(self) -> dict[str, str]:
        secret = await self.credential.current()
        if secret.pair and secret.pair != self._pair:
            self._use(secret.pair)
        return {"Authorization": f"Bearer {secret.token}"} if secret.token else {}

    def refresh(self) -> None:
        """The last credentials were not accepted (401): do not use cached ones."""
        self.credential.refresh()
        pair = self.read_pair()
        if pair and pair != self._pair:
            self._use(pair)

    def expired(self) -> NoAccess | None:
        """The error for an expired client certificate; None if it has not expired."""
        until = tls.not_after(self._pair.certificate) if self._pair else None
        now = datetime.fromtimestamp(self.now(), UTC)
        if until is None or until > now:
            return None
        days = (now - until).days
        ago = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
        return NoAccess(
            f"the client certificate in {self.source} has expired",
            f'user "{self.user}", valid until {until:%Y-%m-%d} ({ago})',
            RENEW,
        )

    def _use(self, pair: tls.Pair | None) -> None:
        self._pair = pair
        if not self.server.startswith("https://"):
            return
        part = "certificate authority"
        try:
            context = tls.trust(self.ca, self.insecure)
            if pair:
                part = "client certificate or key"
                tls.prove(context, pair)
        except (ssl.SSLError, ValueError) as error:
            why = (getattr(error, "reason", None) or "not a certificate").lower().replace("_", " ")
            raise NoAccess(f"the {part} in {self.source} cannot be used", why, NEW_KUBECONFIG) from None
        self._ssl = context


def load(
    kubeconfig: str | None,
    context: str | None,
    environ: Mapping[str, str],
    home: Path,
    *,
    account: Path = SERVICE_ACCOUNT,
    now: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
) -> Access:
    """How to reach the cluster. Nothing is sent yet. Raises NoAccess."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    in_pod = bool(host and port and (account / "token").exists())
    paths = _paths(kubeconfig, environ, home, in_pod)
    if paths:
        choice = configfile.choose(configfile.merge(paths, home), context)
        return _from_kubeconfig(choice, environ, home, now, clock)
    why = "--kubeconfig not given, KUBECONFIG not set, ~/.kube/config missing, "
    if not (host and port and in_pod):
        raise NoAccess(NO_KUBECONFIG, why + "not inside a pod", NO_KUBECONFIG_WAY)
    if context:
        raise NoAccess(NO_KUBECONFIG, why + f'and a pod has no context "{context}"', NO_KUBECONFIG_WAY)
    return _from_pod(host, port, account, home, now, clock)


def _paths(kubeconfig: str | None, environ: Mapping[str, str], home: Path, in_pod: bool) -> list[Path]:
    if kubeconfig:
        path = home / kubeconfig[2:] if kubeconfig.startswith("~/") else Path(kubeconfig)
        if not path.exists():
            raise NoAccess(NO_KUBECONFIG, f"--kubeconfig {kubeconfig}: no such file", NO_KUBECONFIG_WAY)
        return [path]
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        there = [path for path in listed if path.exists()]  # as with kubectl, some may be missing
        if not there and not in_pod:  # Aliyun's DaemonSet names a file that it does not mount
            why = f"KUBECONFIG is {environ['KUBECONFIG']}: no such file"
            raise NoAccess(NO_KUBECONFIG, why, NO_KUBECONFIG_WAY)
        return there
    default = home / ".kube" / "config"
    return [default] if default.exists() else []


def _from_kubeconfig(
    choice: configfile.Choice,
    environ: Mapping[str, str],
    home: Path,
    now: Callable[[], float],
    clock: Callable[[], float],
) -> Access:
    cluster, user = choice.cluster, choice.user
    cluster_source, user_source = configfile.shown(choice.cluster_file, home), configfile.shown(choice.user_file, home)
    server = cluster.server.rstrip("/")
    if not _is_address(server):
        raise NoAccess(
            f'context "{choice.context}" has no usable server',
            f'server is "{cluster.server}" in {cluster_source}',
            "it must look like https://HOST:PORT",
        )
    ca = configfile.material(
        cluster.certificate_authority_data,
        cluster.certificate_authority,
        choice.cluster_file,
        "the certificate authority",
        home,
    )

    def read_pair() -> tls.Pair | None:
        certificate = configfile.material(
            user.client_certificate_data, user.client_certificate, choice.user_file, "the client certificate", home
        )
        key = configfile.material(user.client_key_data, user.client_key, choice.user_file, "the client key", home)
        if certificate and key:
            return tls.Pair(certificate, key)
        if certificate or key:
            missing = "client-key" if certificate else "client-certificate"
            raise NoAccess(f'user "{choice.user_name}" in {user_source} has no {missing}', "both are needed", RENEW)
        return None

    credential: credentials.Credential = credentials.Fixed(user.token)
    if user.token_file:
        credential = credentials.TokenFile(choice.user_file.parent / user.token_file, clock)
    elif user.exec and not user.token:
        shown = msgspec.structs.replace(
            cluster,
            certificate_authority=None,
            certificate_authority_data=base64.b64encode(ca).decode() if ca else None,
        )
        credential = credentials.ExecPlugin(user.exec, shown, choice.user_file.parent, environ, now)
    access = Access(
        server=server,
        namespace=choice.namespace,
        context=choice.context,
        user=choice.user_name,
        source=user_source,
        server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or None,
        credential=credential,
        ca=ca,
        insecure=cluster.insecure_skip_tls_verify,
        read_pair=read_pair,
        now=now,
    )
    if expired := access.expired():
        raise expired
    return access


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        return False


def _from_pod(
    host: str, port: str, account: Path, home: Path, now: Callable[[], float], clock: Callable[[], float]
) -> Access:
    ca = account / "ca.crt"
    namespace = account / "namespace"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text("utf-8").strip() if namespace.exists() else "default",
        source=IN_POD,
        credential=credentials.TokenFile(account / "token", clock),
        ca=configfile.material(None, str(ca), ca, "the certificate authority", home),
        now=now,
    )
