"""Describes GPUs to the stand-in for NVIDIA's library: the file whose format mock_nvml.c explains."""

from pathlib import Path

VARIABLE = "MOCK_NVML_STATE"
DRIVER = "550.54.14"
CUDA = 12040
MIB = 1024 * 1024

# An idle GPU that tells everything; keys and values as mock_nvml.c explains them.
IDLE: dict[str, int | str | None] = {
    "used": 0,
    "reserved": 300 * MIB,
    "util": "0 0",
    "encoder": 0,
    "decoder": 0,
    "temp": 35,
    "memtemp": 38,
    "slowdown": 90,
    "power": 12_000,
    "powercap": 70_000,
    "energy": 1_000_000,
    "clock": "300 405",
    "replays": 0,
    "remapped": "0 0 0",
    "processes": 1,
}


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
            "mode=0",
            *more,
        )
    )


def figures(**changes: int | str | None) -> tuple[str, ...]:
    """Lines for `card`: an idle GPU that tells everything, with these changes. None: it does not tell that one."""
    return tuple(f"{key}={value}" for key, value in (IDLE | changes).items() if value is not None)


def process(pid: int, memory_mib: int | None, sm: int | None = None, kind: str = "process") -> str:
    """A line for `card`: a process with the host's `pid`. Memory None: unknown. `sm` None: it has not computed.
    `kind`: process, graphics or mps."""
    memory = "-" if memory_mib is None else memory_mib * MIB
    return f"{kind}={pid} {memory}" + ("" if sm is None else f" {sm}")


def using(number: int, memory_mib: int, *processes: str, **changes: int | str | None) -> str:
    """A complete GPU that tells everything: `processes` use it, each made by `process`, and they alone use memory
    unless `used` is said."""
    used = sum(int(memory) for line in processes for memory in line.split()[1:2] if memory != "-")
    return card(number, memory_mib, *figures(**{"used": used} | changes), *processes)


class Mock:
    """What the library shows from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def show(self, *cards: str, rules: tuple[str, ...] = ()) -> None:
        """These GPUs, and rules such as `hang=nvmlDeviceGetCount_v2` for all of them."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(
            "\n".join((f"driver={DRIVER}", f"cuda={CUDA}", *rules, *cards)) + "\n", errors="surrogateescape"
        )
        draft.rename(self.path)

    def xid(self, code: int, number: int | None = None) -> None:
        """An error of that GPU, or of no particular one."""
        with self.path.with_name(f"{self.path.name}.xid").open("a") as file:
            file.write(f"{'-' if number is None else uuid(number)} {code}\n")
