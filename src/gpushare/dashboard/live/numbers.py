"""Numbers instead of names: everybody gets the same stream, and not everybody may read every name.

A number means nothing outside of this process. Whoever may read a pod learns its name with its number elsewhere.
"""

from collections.abc import Iterable


class Numbers:
    def __init__(self) -> None:
        self._pods: dict[str, int] = {}  # by uid
        self._namespaces: dict[str, int] = {}
        self._next = 0

    def pod(self, uid: str) -> int:
        number = self._pods.get(uid)
        if number is None:
            number = self._pods[uid] = self._next
            self._next += 1
        return number

    def namespace(self, name: str) -> int:
        return self._namespaces.setdefault(name, len(self._namespaces))

    def forget(self, uids: Iterable[str]) -> None:
        """These pods are gone."""
        for uid in uids:
            self._pods.pop(uid, None)


class Table:
    """Words that many rows share, each with its place in a list."""

    def __init__(self, *first: str) -> None:
        self._places = {word: place for place, word in enumerate(first)}

    def place(self, word: str) -> int:
        return self._places.setdefault(word, len(self._places))

    def words(self) -> list[str]:
        return list(self._places)

    def __len__(self) -> int:
        return len(self._places)
