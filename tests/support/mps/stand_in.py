"""The stand-in for NVIDIA's MPS control program, made to be run, and how a test talks to it."""

import contextlib
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("nvidia-cuda-mps-control")


def install(folder: Path) -> Path:
    """Write it into that folder, to be run by this interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / SOURCE.name
    _, _, text = SOURCE.read_text().partition("\n")
    program.write_text(f"#!{sys.executable} -SE\n{text}")
    program.chmod(0o755)
    return program


class StandIn:
    """`folder`: the daemon's MOCK_MPS, or its pipe folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def behave(self, *words: str) -> None:
        """From the next command on; without words: well."""
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / "behave.draft"
        draft.write_text("\n".join(words))
        draft.rename(folder / "behave")

    def serve(self, *pids: int) -> None:
        """These servers run."""
        (self._folder / "servers").write_text("\n".join(map(str, pids)))

    @property
    def told(self) -> list[str]:
        """The commands it obeyed, without questions."""
        return [line for line in self._lines("told") if not line.startswith("get_")]

    @property
    def wrong(self) -> list[str]:
        """What the real program would not have taken."""
        return self._lines("wrong")

    def _lines(self, name: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / name).read_text().splitlines()
        return []
