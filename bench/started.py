"""Starts the node component as a process of its own and ends it. Used by `bench.node` and `bench.plugin`."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path


@contextlib.asynccontextmanager
async def started(kubeconfig: Path, *words: str) -> AsyncIterator[Process]:
    """`words`: as `bench.running_node` takes them. Its log is a pipe that somebody reads until it has published."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.running_node", str(kubeconfig), *words, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert child.stderr is not None
        async with asyncio.timeout(30):
            while line := await child.stderr.readline():
                if b'"published"' in line:
                    break
            else:
                raise RuntimeError("the node component ended before it had published its GPUs")
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        await child.communicate()
