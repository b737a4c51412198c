"""An event book instead of a recorder: what was told, and to whom."""

from typing import Any

Told = tuple[str, str, str, str]  # kind and name of the object, type, reason, text


class Book:
    def __init__(self) -> None:
        self.events: list[Told] = []

    def record(self, *, kind: str, name: str, type: str, reason: str, message: str, **_: Any) -> None:
        self.events.append((f"{kind}/{name}", type, reason, message))

    def take(self) -> list[Told]:
        taken, self.events = self.events, []
        return taken
