"""From KETI's policy ConfigMaps to the settings in force: the sink of a watch.

A change is applied as a whole, or not at all: with a bad key the last good policy stays. Whoever edited a ConfigMap
reads what came of it in its events (`kubectl describe configmap`).
"""

from collections.abc import Callable, Iterable, Set

from gpushare.core.facts import names, objects
from gpushare.core.facts.scoring import configmaps
from gpushare.core.facts.scoring.configmaps import Problem
from gpushare.core.facts.scoring.settings import NEUTRAL, Settings
from gpushare.extender.metrics import Metrics
from gpushare.kube.events import Recorder
from gpushare.obs import log

APPLIED, REFUSED, NOT_POSSIBLE = "PolicyApplied", "PolicyRefused", "PolicyNotPossible"  # reasons of events
IN_FORCE = "in force: {policy}"
STAYS = "{problems}. Nothing was changed; in force: {policy}"
BESIDE = "{others} has to be mended first"
ONE_NODE = f"{configmaps.MULTI_NODE} has no effect: a pod runs on one node"
LONGEST = 1000  # characters of an event; Kubernetes allows 1024

logger = log.get(__name__)


class PolicyMaps:
    def __init__(self, apply: Callable[[Settings], None], recorder: Recorder, metrics: Metrics) -> None:
        self.settings = NEUTRAL  # in force
        self._apply, self._recorder, self._metrics = apply, recorder, metrics
        self._maps: dict[str, objects.ConfigMap] = {}
        self._listed = False  # all that there are were shown once; before that half of a policy could be applied

    def upsert(self, item: objects.ConfigMap) -> None:
        name = item.metadata.name
        if name not in names.POLICY_CONFIGMAPS:
            return
        before = self._maps.get(name)
        self._maps[name] = item
        same = before is not None and (before.metadata.uid, before.data) == (item.metadata.uid, item.data)
        if self._listed and not same:
            self._decide([name])

    def remove(self, item: objects.ConfigMap) -> None:
        if self._maps.pop(item.metadata.name, None) is not None and self._listed:
            self._decide(self._maps)

    def relisted(self, kept: Set[str]) -> None:
        gone = [name for name in self._maps if name not in kept]
        for name in gone:
            del self._maps[name]
        first, self._listed = not self._listed, True
        if first or gone:
            self._decide(self._maps)

    def _decide(self, changed: Iterable[str]) -> None:
        """`changed`: the ConfigMaps that are told what came of it."""
        read = configmaps.read({name: item.data for name, item in self._maps.items()})
        if isinstance(read, list):
            self._refuse(read, changed)
            return
        self.settings = read
        self._apply(read)
        policy = configmaps.in_one_line(read)
        logger.info("policy", configmaps=",".join(self._maps) or "none", **configmaps.settings_in_words(read))
        for name in changed:
            self._tell(name, "Normal", APPLIED, IN_FORCE.format(policy=policy))
            if read.multi_node:
                self._tell(name, "Warning", NOT_POSSIBLE, ONE_NODE)

    def _refuse(self, problems: list[Problem], changed: Iterable[str]) -> None:
        self._metrics.policy_refused.inc()
        policy, bad = configmaps.in_one_line(self.settings), dict.fromkeys(problem.config_map for problem in problems)
        beside = BESIDE.format(others=" and ".join(bad))
        told = {name: beside for name in changed if name not in bad}  # who edited a good one waits for it, too
        for name in bad:
            told[name] = "; ".join(problem.sentence for problem in problems if problem.config_map == name)
            logger.warn("policy refused, nothing was changed", configmap=name, why=told[name])
        for name, sentences in told.items():
            self._tell(name, "Warning", REFUSED, STAYS.format(problems=sentences, policy=policy))

    def _tell(self, name: str, kind: str, reason: str, message: str) -> None:
        of = self._maps[name].metadata
        self._recorder.record(
            kind="ConfigMap", namespace=of.namespace, name=name, uid=of.uid, type=kind, reason=reason, message=message,
            longest=LONGEST, again=True,
        )  # fmt: skip
