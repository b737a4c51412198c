"""Pods that are not bound yet: what they ask, as soon as a scheduler or the API server shows it.

A scheduler often asks about a pod before our own watch has shown it, and binding needs to know what it asks.
"""

from collections import OrderedDict

from gpushare.core.facts.model import PodFacts

MOST_UNSEEN = (
    10_000  # shown by a scheduler only; of more the oldest are dropped, and read from the API server if needed
)


class PendingPods:
    def __init__(self) -> None:
        self.shown: dict[str, PodFacts] = {}  # by the API server
        self._versions: dict[str, str] = {}  # in which those were shown
        self._unseen: OrderedDict[str, PodFacts] = OrderedDict()

    def get(self, uid: str) -> PodFacts | None:
        return self.shown.get(uid) or self._unseen.get(uid)

    def asked_about(self, pod: PodFacts) -> None:
        """A scheduler asked about this pod."""
        if pod.uid not in self.shown:
            self._unseen[pod.uid] = pod
            self._unseen.move_to_end(pod.uid)
            if len(self._unseen) > MOST_UNSEEN:
                self._unseen.popitem(last=False)

    def shown_in(self, uid: str, version: str) -> PodFacts | None:
        """A pod as the API server showed it in this version; None if it did not, or has shown another since."""
        return self.shown.get(uid) if version and self._versions.get(uid) == version else None

    def show(self, pod: PodFacts, version: str = "") -> None:
        """The API server showed it unbound. `version`: its resource version, empty if it is not known."""
        self.shown[pod.uid] = pod
        self._versions[pod.uid] = version
        self._unseen.pop(pod.uid, None)

    def forget(self, uid: str) -> None:
        self.shown.pop(uid, None)
        self._versions.pop(uid, None)
        self._unseen.pop(uid, None)

    def find(self, namespace: str, name: str) -> PodFacts | None:
        return next((p for p in self.shown.values() if p.name == name and p.namespace == namespace), None)
