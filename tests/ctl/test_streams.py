"""stdout and stderr that are closed, full, or read by nobody: one sentence or none, and never a trace.

Every command, as a process: only then does Python flush its streams at the end.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ctl import fake_kubectl
from tests.ctl.why.cluster import world

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")

BAD_INPUT, READER_GONE = 2, 141
POD = "{kind: Pod, metadata: {name: x}, spec: {containers: [{name: main}]}}"
HELP = [
    "gpushare",
    "gpushare --help",
    "gpushare --version",
    *(f"gpushare {name} --help" for name in ("inspect", "why", "demo", "extender", "node", "device-plugin")),
    "gpushare extender --version",
    "kubectl-gpushare --help",
    "kubectl-inspect-gpushare --help",
]
ANSWERS = [
    "kubectl-inspect-gpushare",
    "kubectl-gpushare inspect -o json",
    "kubectl-gpushare why llm",
    "kubectl-gpushare why llm -o yaml",
    "kubectl-gpushare why -f pod.yaml",
]
DEMO = "gpushare demo --once"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a kubectl, for the cluster of the examples, and a file with a pod."""
    made = tmp_path_factory.mktemp("streams")
    cluster = world({"pods": [{"name": "llm", "containers": {"main": 7000}}]})
    llm = cluster.pods["default", "llm"]
    lists = {"nodes": list(cluster.nodes.values()), "pods": list(cluster.pods.values()), "configmaps": [], "events": []}
    fake_kubectl.install(made, {"llm": llm, **{name: {"items": items} for name, items in lists.items()}})
    (made / "pod.yaml").write_text(POD)
    return made


def shell(folder: Path, words: str, streams: str, stdout: int = subprocess.PIPE) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command with its streams changed as a shell does it."""
    program, _, rest = words.partition(" ")
    command = f"'{Path(sys.executable).with_name(program)}' {rest} {streams}"
    # Without PYTHONUNBUFFERED: as for a user, so that text may still wait in a buffer at the end.
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder), "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
        timeout=60, check=False,
    )  # fmt: skip
    return ended.returncode, (ended.stdout or b"").decode(), ended.stderr.decode()


@pytest.mark.parametrize("words", [*HELP, *ANSWERS, DEMO])
def test_a_full_stdout_is_one_error_in_three_lines(folder: Path, words: str) -> None:
    code, _, err = shell(folder, words, ">/dev/full")
    assert err == (
        "error: the answer cannot be written to stdout\n"
        "  why: no space left on device\n"
        "  try: send it to another place: > FILE\n"
    )
    assert code == BAD_INPUT


@pytest.mark.parametrize("words", [*HELP, *ANSWERS, DEMO])
def test_a_closed_stdout_is_one_error_in_three_lines(folder: Path, words: str) -> None:
    code, _, err = shell(folder, words, ">&-")
    assert [line[:7] for line in err.splitlines()] == ["error: ", "  why: ", "  try: "]
    assert "stdout is closed" in err
    assert code == BAD_INPUT


@pytest.mark.parametrize("words", [*HELP, *ANSWERS, DEMO])
def test_a_pipe_that_nobody_reads_ends_a_command_without_a_word(folder: Path, words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    code, _, err = shell(folder, words, "", stdout=write)
    os.close(write)
    assert (code, err) == (READER_GONE, "")


def test_a_reader_who_wants_one_line_gets_it(folder: Path) -> None:
    code, out, err = shell(folder, "kubectl-inspect-gpushare", "| head -1")
    assert out.startswith("NAME ")
    assert (code, out.count("\n"), err) == (0, 1, "")


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("words", ["gpushare --help", "kubectl-inspect-gpushare", "kubectl-gpushare why llm -o json"])
def test_an_answer_needs_no_stderr(folder: Path, words: str, streams: str) -> None:
    assert shell(folder, words, streams)[:2] == shell(folder, words, "")[:2]


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", ">&- 2>&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "words",
    [
        "gpushare frobnicate",
        "gpushare frobnicate --debug",
        "gpushare device-plugin --v=5 --memory-unit=TiB",
        "kubectl-inspect-gpushare gpu-x",
    ],
)
def test_an_error_that_nobody_can_read_still_has_its_exit_code(folder: Path, words: str, streams: str) -> None:
    assert shell(folder, words, streams) == (BAD_INPUT, "", "")


def test_a_demo_that_cannot_be_shown_leaves_nothing_behind(folder: Path) -> None:
    before = sorted(folder.iterdir())
    shell(folder, DEMO, ">/dev/full")
    assert sorted(folder.iterdir()) == before
