"""In which order pods come, and which of equally good nodes is taken: read from a file, or drawn by a seed.

Drawn as in the published benchmark: all pods of the trace in random order, then pods drawn at random, some of them
several times, until the next one would ask for more than the load. A trace that asks for more than that loses pods.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from gpushare.obs.errors import UserError
from gpushare.sim.reading.numbers import Lists
from gpushare.sim.trace import Node, Pod, Trace

MOST_ARRIVALS = 5_000_000


class Arrivals(NamedTuple):
    order: Sequence[int]  # pods, as positions in the trace
    ranks: Sequence[int]  # of each node of the trace


def drawn(trace: Trace, seed: int, load: float) -> Arrivals:
    chance, amount, limit = random.Random(seed), trace.amounts(), load * trace.capacity
    by_name = sorted(range(len(trace.pods)), key=lambda position: trace.pods[position].name)
    order = list(by_name)
    chance.shuffle(order)
    asked = sum(map(amount, trace.pods))
    if not asked:
        raise UserError("no pod asks for a GPU", "load is what pods ask of GPUs", "name a trace of GPU pods")
    while order and asked > limit:
        asked -= amount(trace.pods[order.pop(chance.randrange(len(order)))])
    while True:
        position = chance.choice(by_name)
        asked += amount(trace.pods[position])
        if asked > limit:
            break
        order.append(position)
        if len(order) > MOST_ARRIVALS:
            why = f"more than {MOST_ARRIVALS:,} pods would come"
            raise UserError(f"a load of {load} is too much", why, "a smaller --load, or fewer nodes")
    return Arrivals(order, _ranks(trace, chance))


def in_time(trace: Trace, seed: int) -> Arrivals:
    """The pods come as the trace says. Only the nodes are drawn."""
    return Arrivals(range(len(trace.pods)), _ranks(trace, random.Random(seed)))


def _ranks(trace: Trace, chance: random.Random) -> Sequence[int]:
    return chance.sample(range(len(trace.nodes)), len(trace.nodes))


def read(trace: Trace, file: str, seed: int) -> Arrivals:
    """From an .npz file with `order_SEED` and `rank_SEED`, which count pods and nodes in the order of their names."""
    lists = Lists(file)
    wanted = [f"{what}_{seed}" for what in ("order", "rank")]
    if not lists.names >= set(wanted):
        seeds = sorted([name.removeprefix("order_") for name in lists.names if name.startswith("order_")])
        known = ", ".join(seeds[:20])[:200] or "none"
        raise UserError(f"{file} has no seed {seed}", f"its seeds: {known}", f"--seed {seeds[0][:9] if seeds else 'N'}")
    pods, nodes = _by_name(trace.pods), _by_name(trace.nodes)
    order, rank = [lists.read(name) for name in wanted]
    ranks = [0] * len(nodes)
    if sorted(rank) != list(range(len(nodes))):
        why = f"rank_{seed} is not an order of {len(nodes)} nodes"
        raise UserError(f"{file} does not belong to these nodes", why, "name the --nodes that it was made for")
    for position, place in zip(nodes, rank, strict=True):
        ranks[position] = place
    if len(order) > MOST_ARRIVALS:
        why = f"order_{seed} has {len(order):,} pods; {MOST_ARRIVALS:,} can come"
        raise UserError(f"{file} is too long", why, "name a file with fewer arrivals")
    if not order or min(order) < 0 or max(order) >= len(pods):
        why = f"order_{seed} is empty, or names other rows than 0 to {len(pods) - 1}"
        raise UserError(f"{file} does not belong to these pods", why, "name the trace that it was made for")
    return Arrivals([pods[row] for row in order], ranks)


def _by_name(named: Sequence[Node] | Sequence[Pod]) -> list[int]:
    return sorted(range(len(named)), key=lambda position: named[position].name)
