"""gpushare's commands on a real cluster, as people run them: piped or on a terminal, alone or as kubectl plugins."""

import asyncio
import contextlib
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.harness import binaries

SECONDS = 30.0
PROGRAMS = Path(sys.executable).parent


def environment(kubeconfig: Path) -> dict[str, str]:
    """kubectl finds its plugins on PATH, as after an installation."""
    path = f"{binaries.program('kubectl').parent}:{PROGRAMS}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "TERM": "xterm", "LC_ALL": "C.UTF-8"}


async def piped(kubeconfig: Path, *words: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(
        subprocess.run,
        words,
        env=environment(kubeconfig),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def on_a_terminal(kubeconfig: Path, *words: str) -> tuple[int, str]:
    return await asyncio.wait_for(asyncio.to_thread(_terminal, kubeconfig, words), SECONDS)


def _terminal(kubeconfig: Path, words: Sequence[str]) -> tuple[int, str]:
    """Exit code and output on a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    shown = b""
    with subprocess.Popen(words, env=environment(kubeconfig), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # nobody has the other side open any more
            while piece := os.read(ours, 1 << 16):
                shown += piece
    os.close(ours)
    return process.returncode, shown.decode("utf-8", "replace").replace("\r\n", "\n")
