"""Where the credentials are looked for, and what is said when they are not usable."""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import NoAccess, Unreachable
from gpushare.kube.models import ServerVersion
from gpushare.kube.requests import Request
from tests.support.scripted_api import CERTS, FakeTime, answer, serve

NO_ACCOUNT = Path("/nowhere")


def b64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def config(
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    name: str = "prod",
    namespace: str | None = None,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": f"{name}-cluster", "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}],
        "users": [{"name": "admin", "user": user or {}}],
        "contexts": [
            {"name": name, "context": {"cluster": f"{name}-cluster", "user": "admin", "namespace": namespace}}
        ],
    }


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def load(
    tmp_path: Path,
    given: Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    account: Path = NO_ACCOUNT,
    time: FakeTime | None = None,
) -> Access:
    clock = (time or FakeTime()).clock
    return login.load(str(given) if given else None, context, environ or {}, tmp_path, account=account, clock=clock)


def test_the_file_given_wins_over_all_others(tmp_path: Path) -> None:
    given = write(tmp_path / "given", config(name="given", namespace="team"))
    listed = write(tmp_path / "listed", config(name="listed"))
    write(tmp_path / ".kube/config", config(name="default"))
    access = load(tmp_path, given, environ={"KUBECONFIG": str(listed)})
    assert (access.server, access.context, access.namespace) == ("https://given:6443", "given", "team")
    assert (access.user, access.source) == ("admin", "~/given")


def test_the_environment_wins_over_the_home_folder(tmp_path: Path) -> None:
    listed = write(tmp_path / "listed", config(name="listed"))
    write(tmp_path / ".kube/config", config(name="default"))
    assert load(tmp_path, environ={"KUBECONFIG": str(listed)}).context == "listed"
    access = load(tmp_path, environ={"KUBECONFIG": ""})
    assert (access.context, access.namespace, access.source) == ("default", "default", "~/.kube/config")


def test_of_several_files_the_first_to_name_something_wins_and_missing_ones_are_skipped(tmp_path: Path) -> None:
    first, second = config(name="a"), config(name="b", user={"token": "second"})
    second["clusters"].append({"name": "a-cluster", "cluster": {"server": "https://other:6443"}})
    write(tmp_path / "1", first)
    write(tmp_path / "2", second)
    environ = {"KUBECONFIG": f"{tmp_path}/missing:{tmp_path}/1::{tmp_path}/2"}
    assert load(tmp_path, environ=environ).server == "https://a:6443"
    assert load(tmp_path, context="b", environ=environ).server == "https://b:6443"


async def test_a_user_of_the_first_file_wins_as_a_whole(tmp_path: Path) -> None:
    write(tmp_path / "1", config(user={"token": "first"}))
    write(tmp_path / "2", config(user={"token": "second"}))
    access = load(tmp_path, environ={"KUBECONFIG": f"{tmp_path}/1:{tmp_path}/2"})
    assert await access.headers() == {"Authorization": "Bearer first"}


async def test_inside_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    write(tmp_path / "account/token", "pod-token\n")
    write(tmp_path / "account/namespace", "kube-system\n")
    write(tmp_path / "account/ca.crt", (CERTS / "ca.crt").read_text())
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = load(tmp_path, environ=environ, account=tmp_path / "account")
    assert (access.server, access.namespace, access.context) == ("https://10.96.0.1:443", "kube-system", "")
    assert await access.headers() == {"Authorization": "Bearer pod-token"}
    six = load(tmp_path, environ={**environ, "KUBERNETES_SERVICE_HOST": "fd00::1"}, account=tmp_path / "account")
    assert six.server == "https://[fd00::1]:443"
    with pytest.raises(NoAccess, match='a pod has no context "prod"'):
        load(tmp_path, context="prod", environ=environ, account=tmp_path / "account")


def test_inside_a_pod_a_kubeconfig_that_is_not_mounted_does_no_harm(tmp_path: Path) -> None:
    write(tmp_path / "account/token", "pod-token\n")
    write(tmp_path / "account/ca.crt", (CERTS / "ca.crt").read_text())
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBECONFIG": "/no/file"}
    assert load(tmp_path, environ=environ, account=tmp_path / "account").source == login.IN_POD


def test_nothing_found_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NoAccess) as caught:
        load(tmp_path)
    assert caught.value.what == "no kubeconfig found"
    assert caught.value.why == ("--kubeconfig not given, KUBECONFIG not set, ~/.kube/config missing, not inside a pod")
    assert caught.value.way == "export KUBECONFIG=FILE, or gpushare demo to try it without a cluster"


def test_a_named_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match="--kubeconfig /no/file: no such file"):
        load(tmp_path, Path("/no/file"))
    with pytest.raises(NoAccess, match="KUBECONFIG is /no/a:/no/b: no such file"):
        load(tmp_path, environ={"KUBECONFIG": "/no/a:/no/b"})


@pytest.mark.parametrize(
    ("content", "what", "why"),
    [
        ("a: [1,\n  token: secret-x", "kubeconfig is not YAML: ~/bad", "line 2"),
        ("a: \x00", "kubeconfig is not YAML: ~/bad", "characters"),
        ("just words", "kubeconfig is not valid: ~/bad", "Expected"),
        ("users: [{name: a, user: {token: 12}}]", "kubeconfig is not valid: ~/bad", r"\$.users\[0\].user.token"),
        ("users: [{name: a, user: {exec: {command: x}}}]", "kubeconfig is not valid: ~/bad", "apiVersion"),
        ("", "no current context in ~/bad", "there are no contexts there"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_an_error_without_its_secrets(
    tmp_path: Path, content: str, what: str, why: str
) -> None:
    with pytest.raises(NoAccess, match=why) as caught:
        load(tmp_path, write(tmp_path / "bad", content))
    assert caught.value.what == what
    assert "secret-x" not in str(caught.value)


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    with pytest.raises(NoAccess, match="kubeconfig cannot be read: ~/dir: Is a directory"):
        load(tmp_path, tmp_path / "dir")


def test_an_unknown_context_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NoAccess) as caught:
        load(tmp_path, write(tmp_path / "file", config()), context="pord")
    assert caught.value.what == 'no context "pord" in ~/file'
    assert (caught.value.why, caught.value.way) == ("contexts there: prod", "--context prod")


@pytest.mark.parametrize("missing", ["users", "clusters"])
def test_a_context_that_names_what_is_not_there_is_an_error(tmp_path: Path, missing: str) -> None:
    with pytest.raises(NoAccess, match=f'context "prod" names {missing[:-1]} .* not in ~/file: {missing} there: none'):
        load(tmp_path, write(tmp_path / "file", {**config(), missing: None}))


@pytest.mark.parametrize("server", ["", "prod:6443", "https://", "https://h:port", "ftp://h"])
def test_a_server_that_is_no_address_is_an_error(tmp_path: Path, server: str) -> None:
    with pytest.raises(NoAccess, match='context "prod" has no usable server'):
        load(tmp_path, write(tmp_path / "file", config(cluster={"server": server})))


@pytest.mark.parametrize(
    ("cluster", "user", "what"),
    [
        ({"certificate-authority-data": "%%%"}, {}, "the certificate authority in ~/file cannot be read: .* base64"),
        ({"certificate-authority-data": "bm8="}, {}, "the certificate authority in ~/file cannot be used"),
        ({"certificate-authority": "no.crt"}, {}, "the certificate authority cannot be read: .*/no.crt: No such file"),
        ({}, {"client-certificate-data": "bm8=", "client-key-data": "bm8="}, "client certificate or key in ~/file"),
        ({}, {"client-certificate-data": "bm8="}, 'user "admin" in ~/file has no client-key'),
        ({}, {"client-key-data": "bm8="}, 'user "admin" in ~/file has no client-certificate'),
    ],
)
def test_certificates_that_cannot_be_used_are_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], what: str
) -> None:
    with pytest.raises(NoAccess, match=what):
        load(tmp_path, write(tmp_path / "file", config(user, cluster)))


def test_an_expired_client_certificate_is_named_with_its_dates(tmp_path: Path) -> None:
    user = {"client-certificate-data": b64(CERTS / "expired.crt"), "client-key-data": b64(CERTS / "expired.key")}
    write(tmp_path / ".kube/config", config(user))
    for now, ago in ((1612051200, "today"), (1612051200 + 90_000, "1 day ago"), (1613347200, "15 days ago")):
        with pytest.raises(NoAccess) as caught:
            login.load(None, None, {}, tmp_path, now=lambda now=now: now)  # type: ignore[misc]
        assert caught.value.what == "the client certificate in ~/.kube/config has expired"
        assert caught.value.why == f'user "admin", valid until 2021-01-31 ({ago})'
        assert caught.value.way.endswith("kubeadm certs renew admin.conf")


def test_secrets_do_not_show_when_an_access_is_printed(tmp_path: Path) -> None:
    access = load(tmp_path, write(tmp_path / "file", config({"token": "secret-x"})))
    assert "secret-x" not in repr(access)


async def test_a_rotated_token_file_is_read_again(tmp_path: Path) -> None:
    write(tmp_path / "keys/token", "one\n")
    time = FakeTime()
    access = load(tmp_path, write(tmp_path / "file", config({"tokenFile": "keys/token", "token": "old"})), time=time)
    assert await access.headers() == {"Authorization": "Bearer one"}
    write(tmp_path / "keys/new", "two\n").rename(tmp_path / "keys/token")
    assert await access.headers() == {"Authorization": "Bearer two"}


async def test_a_token_file_that_does_not_show_its_change_is_read_after_a_minute_or_a_401(tmp_path: Path) -> None:
    path = write(tmp_path / "token", "one")
    time = FakeTime()
    access = load(tmp_path, write(tmp_path / "file", config({"tokenFile": str(path)})), time=time)
    assert await access.headers() == {"Authorization": "Bearer one"}

    def change(text: str) -> None:
        before = path.stat()
        path.write_text(text)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    change("two")
    assert await access.headers() == {"Authorization": "Bearer one"}
    time.now += 60
    assert await access.headers() == {"Authorization": "Bearer two"}
    change("six")
    access.refresh()
    assert await access.headers() == {"Authorization": "Bearer six"}


async def test_a_token_file_that_is_gone_for_a_moment_keeps_its_token(tmp_path: Path) -> None:
    path = write(tmp_path / "token", "one")
    access = load(tmp_path, write(tmp_path / "file", config({"tokenFile": str(path)})))
    await access.headers()
    path.unlink()
    assert await access.headers() == {"Authorization": "Bearer one"}
    path.touch()
    assert await access.headers() == {"Authorization": "Bearer one"}


async def test_a_token_file_that_never_was_is_an_error(tmp_path: Path) -> None:
    access = load(tmp_path, write(tmp_path / "file", config({"tokenFile": "none"})))
    with pytest.raises(NoAccess, match=r"the token file cannot be read: .*/none: No such file"):
        await access.headers()


async def version(access: Access) -> str:
    async with client.connect(access) as api:
        return (await api.fetch(Request("GET", "/version"), ServerVersion)).minor


async def test_a_client_certificate_and_a_private_authority_work_from_files_and_from_data(tmp_path: Path) -> None:
    for name in ("ca.crt", "client.crt", "client.key"):
        write(tmp_path / "pki" / name, (CERTS / name).read_text())
    files = {"client-certificate": "pki/client.crt", "client-key": "pki/client.key"}
    data = {"client-certificate-data": b64(CERTS / "client.crt"), "client-key-data": b64(CERTS / "client.key")}
    async with serve(tls=True, client_certificates=True) as server:
        server.on("GET /version", answer({"major": "1", "minor": "36"}))
        cluster = {"server": server.url + "/", "certificate-authority": "pki/ca.crt"}
        assert await version(load(tmp_path, write(tmp_path / "1", config(files, cluster)))) == "36"
        cluster = {"server": server.url, "certificate-authority-data": b64(CERTS / "ca.crt")}
        assert await version(load(tmp_path, write(tmp_path / "2", config(data, cluster)))) == "36"
        with pytest.raises(Unreachable):
            await version(load(tmp_path, write(tmp_path / "3", config({"token": "x"}, cluster))))


async def test_a_client_certificate_renewed_on_disk_is_used_after_a_401(tmp_path: Path) -> None:
    for name in ("client.crt", "client.key"):
        write(tmp_path / name, (CERTS / name).read_text())
    access = load(
        tmp_path, write(tmp_path / "1", config({"client-certificate": "client.crt", "client-key": "client.key"}))
    )
    before = access.ssl
    access.refresh()
    assert access.ssl is before
    write(tmp_path / "client.crt", (CERTS / "client.crt").read_text() + (CERTS / "ca.crt").read_text())
    access.refresh()
    assert access.ssl is not before


async def test_an_unknown_authority_is_unreachable_and_surely_not_sent(tmp_path: Path) -> None:
    async with serve(tls=True) as server:
        access = load(tmp_path, write(tmp_path / "file", config(cluster={"server": server.url})))
        with pytest.raises(Unreachable, match="its certificate is not trusted: ") as caught:
            await version(access)
        assert not caught.value.sent
        assert server.asked == []


async def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    async with serve(tls=True) as server:
        server.on("GET /version", answer({"major": "1", "minor": "36"}))
        cluster = {"server": server.url, "insecure-skip-tls-verify": True}
        assert await version(load(tmp_path, write(tmp_path / "file", config(cluster=cluster)))) == "36"


async def test_the_name_in_the_certificate_may_be_given(tmp_path: Path) -> None:
    async with serve(tls=True) as server:
        server.on("GET /version", answer({"major": "1", "minor": "36"}))
        cluster = {"server": server.url, "certificate-authority-data": b64(CERTS / "ca.crt")}
        good = config(cluster={**cluster, "tls-server-name": "kubernetes.default"})
        assert await version(load(tmp_path, write(tmp_path / "good", good))) == "36"
        bad = config(cluster={**cluster, "tls-server-name": "other"})
        with pytest.raises(Unreachable, match=r"(?i)hostname mismatch"):
            await version(load(tmp_path, write(tmp_path / "bad", bad)))


async def test_a_server_behind_a_path_is_reached_there(tmp_path: Path) -> None:
    async with serve() as server:
        server.on("GET /k8s/clusters/c-1/version", answer({"major": "1", "minor": "36"}))
        cluster = {"server": server.url + "/k8s/clusters/c-1"}
        assert await version(load(tmp_path, write(tmp_path / "file", config(cluster=cluster)))) == "36"


async def test_a_proxy_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    async with serve() as proxy:
        proxy.on("GET http://cluster.invalid/version", answer({"major": "1", "minor": "36"}))
        cluster = {"server": "http://cluster.invalid", "proxy-url": proxy.url}
        assert await version(load(tmp_path, write(tmp_path / "file", config(cluster=cluster)))) == "36"
        assert [asked.headers["Host"] for asked in proxy.asked] == ["cluster.invalid"]
