"""A control plane made of files, where the command can be killed at each step, and a scheduler that does as told."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare.install import app, files, manifest, plan
from gpushare.install.manifest import Manifest
from gpushare.install.plan import Plan
from gpushare.install.proof import NotProven
from gpushare.install.store import Store
from tests.install import texts

WISH = app.Wish(texts.URL)
STEPS = ("write", "move", "remove", "make_folder", "remove_folder")


class Killed(BaseException):
    """Nothing more happens on disk from here on."""


class Machine:
    """`works`: whether the scheduler asks the extender with what it is given."""

    def __init__(self, root: Path, text: bytes | None = None) -> None:
        self.root, self.works, self.said, self.shown = root, True, list[str](), ""
        self.file = root / texts.NAME.lstrip("/")
        self.file.parent.mkdir(parents=True)
        self.text = texts.kubeadm() if text is None else text
        self.file.write_bytes(self.text)
        self.file.chmod(0o600)
        self.store = Store(root, texts.NAME)
        self.checked = 0

    async def check(self, plan: Plan) -> None:
        self.checked += 1

    async def proven(self, plan: Plan) -> str:
        assert self.file.read_bytes() == plan.after
        assert (self.root / plan.path.lstrip("/")).read_bytes() == plan.content
        if not self.works:
            raise NotProven("it says no")
        return "it works"

    async def back(self, found: Manifest) -> None:
        assert found.pod == manifest.parsed(self.file.read_bytes(), texts.NAME)

    def _show(self, text: str) -> None:
        self.shown += text

    async def install(self, wish: app.Wish = WISH) -> None:
        with self.store.locked():
            await app.install(self.store, wish, self, self._show, self.said.append)

    async def revert(self) -> None:
        with self.store.locked():
            await app.revert(self.store, WISH, self, self._show, self.said.append)

    @property
    def is_as_before(self) -> bool:
        """No byte and no file of ours is left."""
        found = {path for path in self.root.rglob("*") if path.is_file()}
        return self.file.read_bytes() == self.text and found == {self.file}

    @property
    def is_whole(self) -> bool:
        """kubelet could start the scheduler at this moment: the files that its flag names are there."""
        found = plan.made(self.file.read_bytes(), texts.NAME, texts.URL, self.store.read)
        visible = [path for path in self.file.parent.iterdir() if not path.name.startswith(".")]
        return visible == [self.file] and found.manifest.namespace == "kube-system"


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """From the step with this number on nothing happens; how many there were."""
    count = 0

    def dying(real: Callable[..., None]) -> Callable[..., None]:
        def call(*words: object, **more: object) -> None:
            nonlocal count
            count += 1
            if count > step:
                raise Killed
            real(*words, **more)

        return call

    for name in STEPS:
        monkeypatch.setattr(files, name, dying(getattr(files, name)))
    return lambda: count
