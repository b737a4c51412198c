"""An extender's HTTP side over a ledger that is already filled, as a process of its own. Started by `bench.http`.

Prints its port, and answers until it is ended.
"""

import asyncio
import gc
import sys
from typing import cast

from bench.inside import Inside
from gpushare.extender import server
from gpushare.extender.binder import Binder
from gpushare.extender.serving.demand import Demand


async def main(nodes: int) -> None:
    inside = Inside(nodes)
    gc.collect()
    gc.freeze()
    # Binding is not asked here: it needs an API server.
    handlers = server.Handlers(inside.verbs, cast(Binder, None), inside.metrics, lambda: "", Demand())
    runner = await server.serve(handlers, "127.0.0.1", [0], None)
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
