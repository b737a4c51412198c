"""What is said to the MPS control program, and how its answers are read.

Pure. NVIDIA's program takes one command a line on its standard input. A command that sets something answers nothing,
so any words are a refusal. Memory limits are by the number of a GPU: the daemon takes uuids there and ignores them.
"""

from collections.abc import Sequence
from typing import Final

from gpushare.core.facts.model import Data
from gpushare.core.facts.mps import clients

SERVERS: Final = "get_server_list"
PERCENTAGE: Final = "get_default_active_thread_percentage"
QUIT: Final = "quit -t {seconds}"  # its servers get so much time to end
LONGEST_WORDS: Final = 80  # characters of its answer in a sentence
# Lines of its log that only say that we asked.
OURS: Final = ("Accepting connection...", "NEW UI", f"Cmd:{SERVERS}", f"Cmd:{PERCENTAGE}", "UI closed")


class Sizes(Data, frozen=True):
    """How the daemon divides GPUs: into `replicas` parts each. `mib`: the memory of each GPU, by its number."""

    replicas: int
    mib: tuple[tuple[int, int], ...]

    @property
    def threads(self) -> int:
        return clients.threads(self.replicas)


def divide(sizes: Sizes) -> list[str]:
    """Commands for that. They count for servers that come, so each that runs is told, too (`divide_server`)."""
    said = [f"set_default_device_pinned_mem_limit {number} {limit}" for number, limit in _limits(sizes)]
    return [*said, f"set_default_active_thread_percentage {sizes.threads}"]


def divide_server(sizes: Sizes, pid: int) -> list[str]:
    """The same for one server. What runs on it already keeps what it has."""
    said = [f"set_device_pinned_mem_limit {pid} {number} {limit}" for number, limit in _limits(sizes)]
    return [*said, f"set_active_thread_percentage {pid} {sizes.threads}"]


def numbers(answer: str) -> list[int] | None:
    """The pids in an answer, one a line; None if it is something else."""
    words = answer.split()
    return [int(word) for word in words] if all(map(_is_pid, words)) else None


def percentage(answer: str) -> float | None:
    """A number of percent; None if it is something else."""
    word = answer.strip()
    return float(word) if word.replace(".", "", 1).isdecimal() and len(word) < 10 else None


def in_words(answer: str) -> str:
    """An answer in a sentence of ours: its last line, short and printable."""
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    said = "".join(char for char in (lines[-1] if lines else "") if char.isprintable())
    return said[: LONGEST_WORDS - 1] + "…" if len(said) > LONGEST_WORDS else said


def worth_telling(line: str) -> bool:
    """Whether a line of the daemon's log says more than that we asked."""
    text = line.rpartition("] ")[2].strip()
    return bool(text) and text not in OURS


def is_too_old(driver: str, least: int) -> bool:
    """Whether the driver's first number is below `least`. A version that is no number is not too old."""
    major = driver.partition(".")[0]
    return major.isdecimal() and int(major) < least


def summary(sizes: Sizes) -> Sequence[str]:
    """For the log: each GPU's part."""
    return [f"GPU {number}: {clients.memory_mib(mib, sizes.replicas)} MiB" for number, mib in sizes.mib]


def _limits(sizes: Sizes) -> list[tuple[int, str]]:
    return [(number, f"{clients.memory_mib(mib, sizes.replicas)}M") for number, mib in sizes.mib]


def _is_pid(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 11
