"""The extender's watches and ledger in a process of their own. Started by `bench.sync`.

Says when it is synced, then when all pods were listed again, with the most CPU its thread spent between two turns of
the event loop meanwhile: as long as that is, nobody else was answered.
"""

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path

from gpushare.extender import app
from gpushare.kube import client
from gpushare.kube.auth import login


class Turns:
    """Wraps the loop's selector: from one look at the sockets to the next is one turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest = 0.0
        selector = loop._selector  # type: ignore[attr-defined]
        select, began = selector.select, [time.thread_time()]

        def timed(timeout: float | None = None) -> object:
            self.longest = max(self.longest, time.thread_time() - began[0])
            ready = select(timeout)
            began[0] = time.thread_time()
            return ready

        selector.select = timed


async def main(kubeconfig: str) -> None:
    logging.disable(logging.WARNING)  # that the watches end is part of the measurement
    access = login.load(kubeconfig, None, os.environ, Path.home())
    turns = Turns(asyncio.get_running_loop())
    async with client.connect(access) as api:
        extender = app.Extender(app.Config("127.0.0.1", [0], "binpack", None, None), api)
        tasks = extender.start()
        await extender.synced()
        await asyncio.sleep(0.5)  # what follows the first sync is over
        pods = extender.watches["pods"]
        before, turns.longest = pods.lists, 0.0
        print(json.dumps({"nodes": len(extender.ledger.nodes()), "pods": len(extender.ledger.holdings())}), flush=True)
        while pods.lists == before or pods.disconnected_for():  # noqa: ASYNC110 - a reflector tells nobody
            await asyncio.sleep(0.01)
        print(json.dumps({"longest_turn_ms": turns.longest * 1000}), flush=True)
        await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
