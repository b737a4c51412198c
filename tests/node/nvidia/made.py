"""Settings and GPUs for tests: what is not said is as NVIDIA's plugin has it without a config."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gpushare.node.nvidia.rules import settings
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.node.nvidia.rules.settings import Settings

DEFAULT = settings.settle(None, {}, {})


def sliced(replicas: int, **more: Any) -> Settings:
    return set_to(replicas=replicas, **more)


def set_to(**changes: Any) -> Settings:
    return msgspec.structs.replace(DEFAULT, **changes)


def gpus(count: int, *, numa: Sequence[int | None] = (), unhealthy: Sequence[int] = ()) -> list[Gpu]:
    """`GPU-0` and so on; their minor numbers are not their indices."""
    nodes = [*numa, *[None] * count]
    return [Gpu(f"GPU-{i}", i, i + 4, nodes[i], i not in unhealthy) for i in range(count)]


def by_uuid(made: Sequence[Gpu]) -> dict[str, Gpu]:
    return {gpu.uuid: gpu for gpu in made}
