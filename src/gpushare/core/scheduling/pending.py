"""Pods that are not bound yet: what they ask, from the moment anybody told us.

A scheduler often asks about a pod before our own watch has shown it, and binding needs to know what it asks.
"""

from collections import OrderedDict

from gpushare.core.facts.model import PodFacts

MOST_UNSEEN = 10_000  # told by a scheduler only; older ones are read from the API server if it comes to that


class PendingPods:
    def __init__(self) -> None:
        self.shown: dict[str, PodFacts] = {}  # by the API server
        self._told: OrderedDict[str, PodFacts] = OrderedDict()

    def get(self, uid: str) -> PodFacts | None:
        return self.shown.get(uid) or self._told.get(uid)

    def tell(self, pod: PodFacts) -> None:
        """A scheduler asked about this pod."""
        if pod.uid not in self.shown:
            self._told[pod.uid] = pod
            self._told.move_to_end(pod.uid)
            if len(self._told) > MOST_UNSEEN:
                self._told.popitem(last=False)

    def show(self, pod: PodFacts) -> None:
        """The API server showed it unbound."""
        self.shown[pod.uid] = pod
        self._told.pop(pod.uid, None)

    def forget(self, uid: str) -> None:
        self.shown.pop(uid, None)
        self._told.pop(uid, None)

    def find(self, namespace: str, name: str) -> PodFacts | None:
        return next((p for p in self.shown.values() if p.name == name and p.namespace == namespace), None)
