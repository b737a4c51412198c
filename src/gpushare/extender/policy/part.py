"""`--policy-namespace`: the watch on the policy ConfigMaps, and what follows from them. Wiring only.

After a start the first answer is waited for, for a short time: else pods would be placed on reserved nodes meanwhile.
Nothing else waits for it: without the right to read ConfigMaps there, or without ConfigMaps, the extender works as it
does without the option.
"""

from collections.abc import Callable
from typing import Any

from gpushare.core.facts import objects
from gpushare.core.facts.model import Unit
from gpushare.core.facts.scoring import configmaps
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reschedule import OverUsers
from gpushare.extender.metrics import Metrics
from gpushare.extender.policy.maps import PolicyMaps
from gpushare.extender.policy.rescheduler import Rescheduler
from gpushare.kube import resources
from gpushare.kube.client import Api
from gpushare.kube.events import Recorder
from gpushare.kube.reflector import Reflector

FIRST_SECONDS = 5.0  # for the first answer of the API server


class PolicyPart:
    def __init__(
        self,
        namespace: str,
        api: Api,
        life: Life,
        recorder: Recorder,
        metrics: Metrics,
        *,
        unit: Unit | None,
        over_users: OverUsers,
        not_ready: Callable[[], str],
    ) -> None:
        maps = PolicyMaps(life.apply, recorder, metrics)
        self.watch: Reflector[Any] = Reflector(
            api, resources.CONFIG_MAPS, objects.ConfigMap, maps,
            namespace=namespace, key=lambda item: item.metadata.name, optional=True,
        )  # fmt: skip
        self.rescheduler = Rescheduler(
            api, life, recorder, metrics, unit=unit, over_users=over_users, not_ready=not_ready
        )  # fmt: skip
        metrics.policy(lambda: configmaps.settings_in_words(life.settings))

    @property
    def settled(self) -> bool:
        """Whether the policy was read, or cannot be for the moment."""
        watch = self.watch
        return watch.synced or watch.failure is not None or watch.age() > FIRST_SECONDS
