"""The demo from beginning to end, as `make demo` runs it: piped, and on a terminal until Ctrl-C."""

import asyncio
import math
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gpushare.demo import app
from tests.support import extender_process

PATIENCE = 120.0  # seconds; a story takes ten
READING, STARTING = "gpushare.demo.story.READING", "gpushare.devcluster.kubelet.kubelet.MOMENT"
FAST = {READING: 0.1, STARTING: 0.05}  # seconds


def demo(**settings: object) -> list[str]:
    return [*extender_process.command(settings), "demo"]


def environment(folder: Path) -> dict[str, str]:
    """Nothing of this machine but the temporary folder, so that what is left behind can be seen."""
    return {"PATH": str(folder), "HOME": str(folder), "TMPDIR": str(folder), "TERM": "xterm", "LC_ALL": "C.UTF-8"}


def test_piped_it_tells_the_story_once_and_leaves_nothing_behind(folder: Path) -> None:
    done = subprocess.run(
        demo(), env=environment(folder), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if re.match(r"\d+ ", line)] == [str(step) for step in range(1, 11)]
    assert sum(line.startswith("ok    ") for line in lines) == 7
    assert re.fullmatch(r"demo: 10 steps, 7 checks ok, \d+ s", lines[-1])
    assert sum(line.startswith("NAME ") for line in lines) == 2
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in done.stdout
    for promised in (
        "all 3 on one GPU: gpu-b GPU 1",
        "gpu-a GPU 0 and GPU 1",
        "gpu-c, 20000 MiB on each",
        "gpu-b GPU 0, nobody else on it",
        "no single GPU has 7000 MiB free; closest gpu-c GPU 1, 464 short;",
        "it would fit if one of 15 pods there ended, or if it asked 6536 or less",
        "153768/171952 (89%)  ",
        "gpu-d pins by device plugin: kubelet asked it, main has GPU 0, helper GPU 1",
        "gpu-e, 1 of 4, time-slicing",
        "gpu-e  nvidia.com/gpu  time-slicing  1     4      1     3",
        "pods placed: 89 of 89 ",
        "env names its GPU: 50 of 50    2 by the device plugin, 48 by the binding",
        "sold by count: 1 of 4          cuda: env names a GPU of its node",
        "dashboard shows 9 GPUs         granted 153768 MiB, as the cluster says",
    ):
        assert promised in done.stdout
    assert list(folder.iterdir()) == []


def test_on_a_terminal_it_stays_up_until_somebody_has_seen_enough(folder: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        demo(**FAST),
        env=environment(folder),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            shown = _read_until(ours, "(kubectl works too, once it is installed)")
            answer = _type_elsewhere(re.findall(r"^  (export .*|.* why llm-70b -n ml)\r$", shown, re.MULTILINE))
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 0
    os.close(ours)
    assert answer.startswith("llm-70b is Pending: no single GPU has 30000 MiB free.")
    assert "\x1b[" in shown
    assert "████" in shown
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("enough", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])  # SIGHUP: a window that is closed
async def test_whichever_way_somebody_has_seen_enough_it_is_the_normal_end(enough: signal.Signals) -> None:
    async with asyncio.timeout(PATIENCE):
        await app.until_interrupted(lambda: os.kill(os.getpid(), enough), asyncio.sleep(math.inf))


def _type_elsewhere(lines: list[str]) -> str:
    """What the printed lines answer in another terminal, in another folder."""
    plain = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["/bin/sh", "-ec", "\n".join(lines)],
        cwd="/", env=plain, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (len(lines), done.returncode, done.stderr) == (2, 1, "")  # 1: it does not fit
    return done.stdout


def _read_until(terminal: int, words: str) -> str:
    """All that is written on the terminal until these words are."""
    shown, ends = "", time.monotonic() + PATIENCE
    while words not in shown:
        assert time.monotonic() < ends, shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 1 << 16).decode("utf-8", "replace")
    return shown


def test_what_does_not_happen_is_said_and_the_logs_are_kept(folder: Path) -> None:
    done = subprocess.run(
        demo(**{"gpushare.demo.world.PATIENCE": 0.0}),
        env=environment(folder), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAIL  the GPUs of gpu-a published: not after 0 s\n" in done.stdout
    (kept,) = folder.iterdir()
    assert done.stdout.splitlines()[-1].endswith(f"with extender.log and nodes.log: {kept}")
    assert (kept / "nodes.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_in_the_middle_it_leaves_nothing_behind(folder: Path, number: signal.Signals) -> None:
    pipe = subprocess.PIPE
    fast = demo(**FAST)
    with subprocess.Popen(fast, env=environment(folder), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("5  "):  # by then the device plugin has been at work
            pass
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (130, "")
    assert list(folder.iterdir()) == []


def test_killed_in_the_middle_it_leaves_no_process_behind(folder: Path) -> None:
    with subprocess.Popen(demo(**FAST), env=environment(folder), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("2  "):
            pass
        (extender,) = _children(process.pid)
        process.kill()
    ends = time.monotonic() + PATIENCE
    while Path(f"/proc/{extender}").exists():
        assert time.monotonic() < ends, "the extender goes on without its demo"
        time.sleep(0.05)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
