"""`gpushare top`: each GPU and each pod once, in the order that was asked for, and unknown is never 0."""

import contextlib
import io
import json
import os
import pty
import signal
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare import cli
from gpushare.ctl.screen import Screen
from gpushare.ctl.top import command, keys, page
from gpushare.ctl.top.command import Options
from gpushare.ctl.top.keys import Keys
from gpushare.ctl.top.rows import ORDERS, GpuRow, Rows, ordered, rows
from gpushare.obs.errors import UserError
from tests.ctl import worlds
from tests.ctl.inspect.test_watch import Terminal
from tests.ctl.worlds import NOW


class Pressed(Keys):
    """Somebody who presses these keys, one after each picture, and then q."""

    def __init__(self, *script: str) -> None:
        super().__init__(None)
        self._script = [*script, "q"]

    def now(self) -> float:
        return NOW.timestamp()

    def sleep(self, seconds: float) -> None:
        self.pressed = self._script.pop(0)


class Window(Screen):
    """One of a fixed size."""

    def resized(self) -> bool:
        return False


def found(world: str) -> Rows:
    return rows(command.read(worlds.cluster(world), NOW.timestamp()))


def printed(world: str, *, output: str = "", order: str = "used") -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = command.run(
        Options(order, output), worlds.cluster(world), Screen(out, err), contextlib.nullcontext(Pressed())
    )
    assert code == 0
    return out.getvalue(), err.getvalue()


def names(gpus: list[GpuRow]) -> list[str]:
    return [f"{row.node} {row.gpu}" for row in gpus]


def test_gpus_are_shown_by_what_they_use_and_unknown_comes_last() -> None:
    text, notes = printed("measured")
    lines = text.splitlines()
    assert lines[0] == "7 GPUs, granted 24%, used 39%, 0 waiting, 3 pods over"
    assert [line.split()[:2] for line in lines[2:9]] == [
        ["gpu-a", "1"], ["gpu-a", "0"], ["gpu-b", "1"], ["gpu-e", "0"], ["gpu-b", "0"], ["gpu-c", "0"], ["gpu-d", "0"],
    ]  # fmt: skip
    assert lines[2].split()[3:8] == ["16000/16276", "16104/16276", "98%", "79", "°C"]
    assert lines[7].split()[3:6] == ["2000/40536", "-/40536", "-"], "its figures are too old"
    assert "gpu-c, gpu-d" in notes


def test_pods_that_use_more_than_they_asked_come_first() -> None:
    text, _ = printed("measured")
    pods = text.split("\n\n")[1].splitlines()[1:]
    assert [line.split()[0] for line in pods[:4]] == ["ml/serve-a", "default/alone", "default/vision", "ml/serve-b"]
    assert pods[0].endswith("1000 MiB")
    assert pods[3].rstrip().endswith("5000")


@pytest.mark.parametrize(
    ("order", "first"),
    [("busy", "gpu-a 1"), ("granted", "gpu-a 1"), ("free", "gpu-c 0"), ("idle", "gpu-a 0"), ("over", "gpu-a 1"),
     ("temperature", "gpu-a 1"), ("watts", "gpu-a 1"), ("name", "gpu-a 0"), ("used", "gpu-a 1")],
)  # fmt: skip
def test_every_order_has_its_first(order: str, first: str) -> None:
    assert names(ordered(found("measured").gpus, order))[0] == first


def test_every_order_has_a_key_of_its_own() -> None:
    assert len(command.BY_KEY) == len(ORDERS)
    assert command.QUIT not in command.BY_KEY
    assert all(f"{key} {order}" in page.KEYS for key, order in command.BY_KEY.items())


def test_a_node_that_sells_by_count_does_not_say_what_is_granted() -> None:
    by_name = {f"{row.node} {row.gpu}": row for row in found("sold").gpus}
    assert by_name["gpu-e 0"].granted is None
    assert by_name["gpu-a 0"].granted == 4000


def test_amounts_of_nodes_that_count_in_gib_are_shown_in_mib() -> None:
    row = next(row for row in found("both-units").gpus if row.node == "coarse")
    assert (row.granted, row.total) == (30720, 81920)


def test_for_programs_all_of_it_is_json_and_unknown_is_null() -> None:
    answer = json.loads(printed("measured", output="json")[0])
    assert answer["gpus"][0] == {
        "node": "gpu-a", "gpu": 1, "model": "", "total": 16276, "granted": 16000, "used": 16104, "utilization": 98,
        "temperature": 79, "power": 249, "pods": 3, "over": 1100, "healthy": True,
    }  # fmt: skip
    assert answer["gpus"][-1]["used"] is None
    assert answer["pods"][0]["over"] == 1000


def test_without_gpus_it_says_so() -> None:
    assert page.NO_GPUS in printed("empty")[0]


def test_a_key_changes_the_order_without_asking_the_cluster_again() -> None:
    cluster, out = worlds.cluster("measured"), io.StringIO()
    screen = Window(out, io.StringIO(), width=120, height=24, moves=True)
    assert command.run(Options(), cluster, screen, contextlib.nullcontext(Pressed("n", "z"))) == 0
    terminal = Terminal(24)
    terminal.feed(out.getvalue())
    shown = terminal.shown()
    assert [line.split()[:2] for line in shown[3:5]] == [["gpu-a", "0"], ["gpu-a", "1"]]
    assert cluster.asked.count("/api/v1/pods") == 1
    assert len(shown) < 24


@pytest.mark.parametrize("height", [8, 12, 16, 24, 60])
def test_only_what_fits_is_drawn_and_the_rest_is_counted(height: int) -> None:
    cluster, out = worlds.cluster("documented"), io.StringIO()
    screen = Window(out, io.StringIO(), width=100, height=height, moves=True)
    command.run(Options(), cluster, screen, contextlib.nullcontext(Pressed()))
    terminal = Terminal(height)
    terminal.feed(out.getvalue())
    shown = terminal.shown()
    assert len(shown) <= height - 1
    gpus = sum(line.startswith("gpu-") for line in shown)
    left_out = [line for line in shown if line.startswith("… ") and "GPU" in line]
    assert gpus == 9 or left_out == [f"… {9 - gpus} more GPUs"]
    assert not any("more node" in line for line in shown)


def test_keys_of_a_terminal_come_at_once_and_it_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, its = pty.openpty()
    with os.fdopen(its, "rb", buffering=0) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        before = termios.tcgetattr(its)
        with keys.of_terminal() as pressed:
            assert termios.tcgetattr(its)[3] & termios.ICANON == 0
            os.write(mine, b"b")
            pressed.sleep(10)
            assert pressed.pressed == "b"
            pressed.sleep(0)
            assert pressed.pressed == ""
        assert termios.tcgetattr(its) == before
    os.close(mine)


@contextlib.contextmanager
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """As stdin."""
    mine, its = pty.openpty()
    with os.fdopen(its, "rb", buffering=0) as stdin, os.fdopen(mine, "rb", buffering=0):
        monkeypatch.setattr("sys.stdin", stdin)
        yield its


def test_sigterm_ends_it_with_the_terminal_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_terminal(monkeypatch) as its:
        before, handler = termios.tcgetattr(its), signal.getsignal(signal.SIGTERM)
        with pytest.raises(SystemExit, match="143"), keys.of_terminal():
            signal.raise_signal(signal.SIGTERM)
        assert termios.tcgetattr(its) == before
        assert signal.getsignal(signal.SIGTERM) is handler


def test_ctrl_z_gives_the_shell_its_terminal_and_takes_it_back_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_terminal(monkeypatch) as its:
        before, while_stopped = termios.tcgetattr(its), list[object]()
        monkeypatch.setattr("os.kill", lambda pid, number: while_stopped.append((number, termios.tcgetattr(its))))
        with keys.of_terminal():
            for _ in range(2):
                signal.raise_signal(signal.SIGTSTP)
                assert termios.tcgetattr(its)[3] & termios.ICANON == 0
        assert while_stopped == [(signal.SIGTSTP, before)] * 2
        assert termios.tcgetattr(its) == before


def test_without_stdin_there_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with keys.of_terminal() as pressed:
        pressed.sleep(0)
        assert pressed.pressed == ""


def test_a_letter_that_is_no_key_does_not_ask_the_cluster_again(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, its = pty.openpty()
    with os.fdopen(its, "rb", buffering=0) as stdin, os.fdopen(mine, "wb", buffering=0) as typed:
        monkeypatch.setattr("sys.stdin", stdin)
        with keys.of_terminal() as pressed:
            typed.write("한".encode())
            pressed.sleep(10)
            assert pressed.pressed


@pytest.mark.parametrize("words", [[], ["-o", "json"]])
def test_what_is_printed_once_leaves_the_terminal_alone(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config), "utf-8")
    taken: list[int] = []
    with a_terminal(monkeypatch):
        monkeypatch.setattr("tty.setcbreak", lambda *given: taken.append(1))
        assert cli.main(["top", "--kubeconfig", str(tmp_path / "config"), *words]) == 3
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert taken == []


def test_bad_words_are_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words, what in ((["--sort", "hot"], 'unknown order "hot"'), (["-o", "wide"], 'unknown output format "wide"')):
        assert cli.main(["top", *words]) == 2
        assert what in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_an_error_and_nothing_is_printed() -> None:
    cluster, out = worlds.cluster("measured"), io.StringIO()
    cluster.failing = UserError("the API server does not answer", "connection refused", "look", 3)
    with pytest.raises(UserError, match="does not answer"):
        command.run(Options(), cluster, Screen(out, io.StringIO()), contextlib.nullcontext(Pressed()))
    assert out.getvalue() == ""
