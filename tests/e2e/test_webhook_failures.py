"""The webhook killed, slow, with an expired certificate, with another authority, and rolled out under load.

Pods that ask for GPUs are refused with a sentence, or never notice. All others never notice: the API server does not
even connect.
"""

import asyncio
import base64
import contextlib
import datetime
import itertools
import signal
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

from gpushare.core.admission import guard, pinning
from gpushare.webhook import certificates, rules, secret
from gpushare.webhook.certificates import Held
from tests.e2e import test_webhook
from tests.e2e.harness import objects, shipped
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.processes import Process
from tests.e2e.harness.webhooks import Webhooks
from tests.e2e.harness.world import World
from tests.support import wait
from tests.support.api_client import Answer

HOST = rules.host(guard.NAMESPACE)
installed = test_webhook.installed

RATE = 50  # pods a second
LAG = 2.0  # seconds in which nodes still send requests to a replica that is being stopped
PATIENCE = 40.0
SECRET = f"/api/v1/namespaces/{shipped.NAMESPACE}/secrets/{secret.NAME}"
_numbers = itertools.count()


async def asks(world: World, *, memory: int | None = 1) -> Answer:
    pod = objects.pod(scheduler="nobody", name=f"p-{next(_numbers)}", containers={"main": memory})
    return await world.api.call("POST", world.api.pods, pod)


async def works(world: World) -> None:
    async def pinned() -> bool:
        answer = await asks(world)
        return answer.code == 201 and bool(answer.body["spec"]["containers"][0].get("env"))

    await wait.eventually_asked(pinned, "pods are pinned", PATIENCE)


async def others_notice_nothing(world: World, installed: Webhooks) -> None:
    before = installed.front.connections
    for _ in range(20):
        assert (await asks(world, memory=None)).code == 201
    assert installed.front.connections == before


async def test_without_the_webhook_gpu_pods_are_refused_and_others_never_notice(
    world: World, installed: Webhooks, figures: Figures
) -> None:
    process, _ = await installed.replica()
    await installed.registered()
    await works(world)
    await installed.kill(process)
    refused = await asks(world)
    assert refused.code == 500
    assert 'failed calling webhook "pin.gpushare.io"' in refused.message
    await others_notice_nothing(world, installed)
    forged = objects.pod(name="forged", annotations={"gpushare.io/visible-0": "all"})
    assert (await world.api.call("POST", world.api.pods, forged)).code == 500  # the guard does not open either
    installed.front.ports.clear()
    await installed.replica()
    await works(world)
    figures.say("webhook killed", f"GPU pods: {refused.message}; others: no connection, no error")


async def test_a_webhook_that_never_answers_delays_gpu_pods_and_nobody_else(
    world: World, installed: Webhooks, figures: Figures
) -> None:
    process, _ = await installed.replica()
    await installed.registered()
    await works(world)
    installed.front.black_hole = True
    await installed.kill(process)  # open connections end, new ones lead nowhere
    before = installed.front.connections
    slow = asyncio.create_task(asks(world))
    await wait.eventually(lambda: installed.front.connections > before, "the API server asks", PATIENCE)
    await others_notice_nothing(world, installed)
    refused = await slow
    assert refused.code == 500
    assert "pin.gpushare.io" in refused.message
    assert "deadline exceeded" in refused.message or "Timeout" in refused.message
    figures.say("webhook silent", f"GPU pods: {refused.message}; others: no connection, no error")


async def test_an_expired_certificate_is_a_sentence_and_new_files_are_served_without_a_restart(
    world: World, installed: Webhooks, tmp_path: Path, figures: Figures
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    old = certificates.current(None, now - certificates.LEAF_LIFE - datetime.timedelta(days=1), HOST)
    files = {name: tmp_path / name for name in old.as_data()}

    def write(held: Held) -> None:
        for name, value in held.as_data().items():
            files[name].write_bytes(value)

    write(old)
    await installed.replica(
        "--tls-cert", str(files[certificates.CERTIFICATE]), "--tls-key", str(files[certificates.KEY]),
        "--ca-file", str(files[certificates.BUNDLE]),
    )  # fmt: skip
    await installed.registered()
    await wait.eventually_asked(lambda: says_expired(world), "the API server knows the rules", PATIENCE)
    await others_notice_nothing(world, installed)
    refused = await asks(world)
    write(certificates.current(old, now, HOST))
    await works(world)
    figures.say("webhook with an expired certificate", f"GPU pods: {refused.message}")


async def says_expired(world: World) -> bool:
    return "certificate has expired" in (await asks(world)).message


async def test_a_new_authority_takes_over_while_pods_are_created_and_none_is_refused(
    world: World, installed: Webhooks, figures: Figures
) -> None:
    """The second authority was made so long ago that it signs half a minute from now."""
    now = datetime.datetime.now(datetime.UTC)
    made = now - certificates.AUTHORITY_LEFT - datetime.timedelta(days=1)
    first = certificates.current(None, made, HOST)
    leaf = certificates.current(first, now - datetime.timedelta(days=20), HOST)
    both = certificates.current(leaf, now - certificates.SETTLED + datetime.timedelta(seconds=30), HOST)
    assert (both.certificate, both.bundle.count(b"BEGIN")) == (leaf.certificate, 2)
    data = {name: base64.b64encode(value).decode() for name, value in both.as_data().items()}
    assert (await world.api.patch(SECRET, {"data": data})).code == 200
    _, port = await installed.replica()
    await installed.registered()
    await works(world)
    shown = await shown_by(port)
    async with load(world) as answers:

        async def another() -> bool:
            return await shown_by(port) != shown

        await wait.eventually_asked(another, "the new authority signs", 60.0, every=0.5)
        await asyncio.sleep(1.0)
    check_all_pinned(answers)
    assert (await world.cluster.get(SECRET))["data"][certificates.BUNDLE] == data[certificates.BUNDLE]
    figures.say("authority replaced", f"{len(answers)} GPU pods created meanwhile, none refused")


async def shown_by(port: int) -> str:
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


async def test_a_roll_out_under_load_loses_no_pod(world: World, installed: Webhooks, figures: Figures) -> None:
    old = [await installed.replica() for _ in range(2)]
    await installed.registered()
    await works(world)
    async with load(world) as answers:
        for process, port in old:
            await installed.replica()  # maxSurge 1: first a new one, then an old one ends
            await retire(installed, process, port)
    check_all_pinned(answers)
    assert all(process.popen.returncode == 0 for process, _ in old)
    figures.say("webhook rolled out", f"{len(answers)} GPU pods at {RATE} a second, 2 replicas replaced: none refused")


async def retire(installed: Webhooks, process: Process, port: int) -> None:
    """As kubelet and kube-proxy do it: the replica is told to end, and nodes learn it a moment later."""
    process.popen.send_signal(signal.SIGTERM)
    await asyncio.sleep(LAG)
    installed.front.ports.remove(port)
    await wait.eventually(lambda: not process.running, "the replica has ended", PATIENCE)


@contextlib.asynccontextmanager
async def load(world: World) -> AsyncIterator[list[Answer]]:
    """Pods that ask, at a steady rate. The list is complete at the end."""
    answers: list[Answer] = []

    async def create() -> None:
        answers.append(await asks(world))

    async def keep_creating() -> None:
        begun, made = time.monotonic(), 0
        async with asyncio.TaskGroup() as tasks:
            while not ending.is_set():
                for _ in range(int((time.monotonic() - begun) * RATE) - made):
                    tasks.create_task(create())
                    made += 1
                await asyncio.sleep(0.02)

    ending = asyncio.Event()
    creating = asyncio.create_task(keep_creating())
    try:
        yield answers
    finally:
        ending.set()
        await creating


def check_all_pinned(answers: list[Answer]) -> None:
    refused = [answer.message for answer in answers if answer.code != 201]
    assert refused == []
    assert all(answer.body["spec"]["containers"][0]["env"] for answer in answers)
    assert len(answers) > RATE


async def test_three_replicas_that_start_together_agree_on_one_certificate(
    world: World, installed: Webhooks, figures: Figures
) -> None:
    started = await asyncio.gather(*(installed.replica() for _ in range(3)))
    shown = {await shown_by(port) for _, port in started}
    assert len(shown) == 1
    await installed.registered()
    await works(world)
    figures.say("three replicas started together", "one authority, one certificate")


async def test_the_rules_of_old_api_servers_reach_labelled_namespaces_only(
    world: World, installed: Webhooks, figures: Figures
) -> None:
    """As before 1.28: this API server gets the rules that the webhook would write there, under other names."""
    process, _ = await installed.replica()
    await installed.registered()
    pin, *_ = await installed.webhooks("mutating", rules.PIN)
    old = (1, 27)
    made = {"Mutating": rules.mutating(old, rules.Choices()), "Validating": rules.guarding(old)}
    objects_ = [
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "as-before-1-28"},
            "webhooks": rules.with_bundles(webhooks, pin["clientConfig"]["caBundle"], []),
        }
        for kind, webhooks in made.items()
    ]  # fmt: skip
    for kind, name in (("mutating", rules.PIN), ("validating", rules.GUARD), ("validating", rules.VALIDATE)):
        await world.cluster.kubectl("delete", f"{kind}webhookconfiguration", name)
    await world.cluster.apply(*objects_)
    try:
        await wait.eventually_asked(lambda: is_plain(world), "the pin of new API servers is gone", PATIENCE)
        label = {"metadata": {"labels": dict(pinning.NAMESPACES)}}
        assert (await world.api.patch(f"/api/v1/namespaces/{world.api.namespace}", label)).code == 200
        await works(world)
        forged = {"metadata": {"annotations": {"gpushare.io/visible-0": "all"}}}
        made_pod = (await asks(world)).body["metadata"]["name"]
        assert (await world.api.patch(f"{world.api.pods}/{made_pod}", forged)).code == 403
        await installed.kill(process)
        assert (await asks(world)).code == 500
        system = objects.pod(name="p", containers={"main": 1})
        path = f"/api/v1/namespaces/{shipped.NAMESPACE}/pods"
        assert (await world.api.call("POST", path, system, dryRun="All")).code == 201
        status = {"status": {"message": "well"}}
        assert (await world.api.patch(f"{world.api.pods}/{made_pod}/status", status)).code == 200  # kubelets go on
    finally:
        for one in objects_:
            await world.cluster.kubectl("delete", str(one["kind"]), "as-before-1-28")
    figures.say("rules for API servers before 1.28", "pods of labelled namespaces are pinned; all others never ask")


async def is_plain(world: World) -> bool:
    answer = await asks(world)
    return answer.code == 201 and not answer.body["spec"]["containers"][0].get("env")
