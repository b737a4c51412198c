"""Describes GPUs to the stand-in for NVIDIA's library: the file whose format mock_nvml.c explains."""

from pathlib import Path

VARIABLE = "MOCK_NVML_STATE"
DRIVER = "550.54.14"
MIB = 1024 * 1024


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-0000-0000-000000000000"


def card(number: int, memory_mib: int = 16276, *more: str) -> str:
    """A complete GPU, and `more` lines about it."""
    return "\n".join(
        (
            f"gpu={uuid(number)}",
            f"memory={memory_mib * MIB}",
            "name=Tesla T4",
            f"minor={number}",
            f"bus=00000000:{number + 16:02X}:00.0",
            "capability=7.5",
            "mig=0",
            "action=0",
            *more,
        )
    )


class Mock:
    """What the library shows from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def show(self, *cards: str, rules: tuple[str, ...] = ()) -> None:
        """These GPUs, and rules such as `hang=nvmlDeviceGetCount_v2` for all of them."""
        draft = self.path.with_suffix(".draft")
        draft.write_text("\n".join((f"driver={DRIVER}", *rules, *cards)) + "\n", errors="surrogateescape")
        draft.rename(self.path)

    def xid(self, code: int, number: int | None = None) -> None:
        """An error of that GPU, or of no particular one."""
        with self.path.with_name(f"{self.path.name}.xid").open("a") as file:
            file.write(f"{'-' if number is None else uuid(number)} {code}\n")
