"""`-w`: drawn in place, only when something changed, never too often, and what was seen last stays."""

import io
import re
from collections.abc import Callable

import pytest

from gpushare.ctl.inspect import command, watch
from gpushare.ctl.inspect.command import Options
from gpushare.ctl.inspect.table import Drawn
from gpushare.ctl.inspect.watch import Clock, Page
from gpushare.ctl.screen import Screen
from gpushare.obs.errors import UserError
from tests.ctl import worlds
from tests.ctl.worlds import NOW, Cluster, node, pod

GONE = UserError("the API server does not answer", "connection refused", "look", 3)


class Terminal:
    """A screen that understands what we send it: what would stand there, line by line."""

    def __init__(self, lines: int) -> None:
        self.lines, self._row, self._size = [""], 0, lines

    def feed(self, text: str) -> None:
        for part in re.split(r"(\x1b\[[0-9]*[A-Za-z]|\n)", text):
            match = re.fullmatch(r"\x1b\[([0-9]*)([A-Za-z])", part)
            if part == "\n":
                self._row += 1
                self.lines += [""] * (self._row + 1 - len(self.lines))
            elif match and match[2] == "F":
                self._row -= int(match[1])
                assert self._row >= max(0, len(self.lines) - self._size), "above the top of the screen"
            elif match and match[2] == "K":
                self.lines[self._row] = ""
            elif match and match[2] == "J" and match[1] == "2":
                self.lines = [""] * len(self.lines)
            elif match and match[2] == "J":
                del self.lines[self._row + 1 :]
            elif match and match[2] == "H":
                self._row = max(0, len(self.lines) - self._size)
            else:
                self.lines[self._row] += part

    def shown(self) -> list[str]:
        return self.lines[:-1]


class Scripted(Clock):
    """Each sleep plays the next step; after the last one somebody presses Ctrl-C."""

    def __init__(self, *steps: Callable[[], None]) -> None:
        self.time, self.slept, self.cost = NOW.timestamp(), list[float](), 0.0
        self._steps = iter(steps)

    def now(self) -> float:
        return self.time

    def elapsed(self) -> float:
        self.time += self.cost  # asked before and after each look
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += 1
        step = next(self._steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    def written(self, moment: float) -> str:
        seconds = round(moment - NOW.timestamp()) + 5
        return f"12:30:{seconds:02}"


class Watching:
    def __init__(self, world: worlds.World, *, width: int = 120, height: int = 40, color: bool = False) -> None:
        self.cluster = Cluster(world)
        self.screen = Screen(io.StringIO(), io.StringIO(), width=width, height=height, color=color, moves=True)
        self.screen.resized = lambda: False  # type: ignore[method-assign]
        self.pictures: list[str] = []
        self.height = height

    def run(self, clock: Clock, options: Options = Options(watch=True)) -> int:  # noqa: B008
        self.screen.say = self.pictures.append  # type: ignore[assignment, method-assign]
        return command.run(options, self.cluster, self.screen, clock)

    def shown(self, pictures: int | None = None) -> list[str]:
        terminal = Terminal(self.height)
        for text in self.pictures[:pictures]:
            terminal.feed(text)
        return terminal.shown()


def test_the_first_picture_is_the_table_under_a_line_of_counts() -> None:
    watching = Watching(worlds.documented())
    assert watching.run(Scripted()) == 130
    plain = io.StringIO()
    screen = Screen(plain, io.StringIO(), width=120)
    command.run(Options(), Cluster(worlds.documented()), screen, Scripted())
    assert watching.shown(1) == ["12:30:05  4 nodes, 49 pods, 2 waiting", *plain.getvalue().splitlines()]


def test_nothing_is_drawn_while_nothing_changes() -> None:
    world = worlds.demo_nodes(), worlds.demo_pods()
    watching = Watching(world)
    clock = Scripted(*[lambda: None] * 5)
    watching.run(clock)
    assert len(watching.pictures) == 2  # and the line end after ^C
    assert len(clock.slept) == 6


def test_a_change_replaces_the_picture_in_place() -> None:
    watching = Watching((worlds.demo_nodes(), worlds.demo_pods()))

    def ends() -> None:
        watching.cluster.pods = [p for p in watching.cluster.pods if p["metadata"]["name"] != "solo"]

    watching.run(Scripted(lambda: None, ends))
    lines = watching.shown(2)
    assert lines[0] == "12:30:07  3 nodes, 45 pods, 0 waiting"
    assert lines[3].split()[:3] == ["gpu-b", "10.0.0.12", "0/24268"]
    assert len([line for line in lines if line.startswith("NAME")]) == 1


def test_a_shorter_picture_leaves_nothing_of_the_longer_one() -> None:
    watching = Watching(worlds.documented())

    def fewer() -> None:
        watching.cluster.nodes, watching.cluster.pods = [node("a", 16276)], []

    watching.run(Scripted(fewer))
    assert watching.shown(2) == [
        "12:30:06  1 node, 0 pods, 0 waiting",
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU Memory(MiB)",
        "a     10.0.0.11  0/16276                0/16276",
        "-" * 48,
        "Allocated/Total GPU Memory In Cluster:",
        "0/16276 (0%)  ",
    ]


def test_when_the_cluster_is_gone_the_table_stays_dim_and_it_is_tried_again() -> None:
    watching = Watching((worlds.demo_nodes(), worlds.demo_pods()), color=True)

    def fail() -> None:
        watching.cluster.failing = GONE

    def back() -> None:
        watching.cluster.failing = None

    watching.run(Scripted(lambda: None, fail, lambda: None, back))
    first, lost, again = (watching.shown(n) for n in (1, 2, 3))
    assert len(watching.pictures) == 4
    assert lost[0] == "no answer since 12:30:06, trying again"
    assert all(line.startswith("\x1b[2m") for line in lost[1:])
    assert not any("█" in line and line.count("\x1b[0m") > 1 for line in lost)
    assert again[0] == "12:30:09  3 nodes, 46 pods, 0 waiting"
    assert again[1:] == first[1:]


def test_what_is_wrong_before_the_first_picture_is_an_error() -> None:
    watching = Watching(worlds.documented())
    watching.cluster.failing = GONE
    with pytest.raises(UserError):
        watching.run(Scripted())
    assert watching.pictures == []


def test_a_named_node_that_disappears_ends_it() -> None:
    watching = Watching(worlds.documented())

    def drop() -> None:
        watching.cluster.nodes = worlds.demo_nodes()

    with pytest.raises(UserError) as caught:
        watching.run(Scripted(drop), Options(watch=True, nodes=("gpu-d",)))
    assert caught.value.what == 'no node "gpu-d"'


@pytest.mark.parametrize(("cost", "pause"), [(0.0, 0.5), (0.04, 0.5), (0.2, 2.0), (3.0, 30.0)])
def test_looking_takes_at_most_a_tenth_of_the_time_and_twice_a_second(cost: float, pause: float) -> None:
    clock = Scripted()
    clock.cost = cost
    Watching((worlds.demo_nodes(), [])).run(clock)
    assert clock.slept == [pytest.approx(pause)]


def test_a_look_that_fails_slowly_does_not_slow_down_the_next() -> None:
    watching = Watching((worlds.demo_nodes(), []))
    clock = Scripted(lambda: None)

    def fail() -> None:
        watching.cluster.failing, clock.cost = GONE, 10.0

    clock._steps = iter([fail, lambda: None])
    watching.run(clock)
    assert clock.slept == [0.5, 0.5, 0.5]


def test_ctrl_c_leaves_the_last_state_and_says_130() -> None:
    watching = Watching((worlds.demo_nodes(), []))
    assert watching.run(Scripted()) == 130
    assert watching.pictures[-1] == "\n"
    assert "\x1b[?1049h" not in watching.pictures[0]  # not the alternate screen


def test_while_watching_nothing_is_said_about_waiting() -> None:
    watching = Watching((worlds.demo_nodes(), []))
    said: list[bool] = []
    watching.run(Scripted(lambda: said.append(watching.screen.quiet)))
    assert said == [True]
    assert not watching.screen.quiet


def test_a_resized_terminal_is_cleared_and_drawn_anew() -> None:
    watching = Watching((worlds.demo_nodes(), []))
    sizes = iter([False, True])
    watching.screen.resized = lambda: next(sizes)  # type: ignore[method-assign]
    watching.run(Scripted(lambda: None))
    assert watching.pictures[1].startswith("\x1b[H\x1b[2J")
    assert watching.shown(2)[-7:] == watching.shown(1)[1:]


@pytest.mark.parametrize(
    ("options", "moves"), [(Options(watch=True), False), (Options(watch=True, output="json"), True)]
)
def test_where_nothing_can_be_redrawn_one_sentence_says_so(options: Options, moves: bool) -> None:
    out = io.StringIO()
    cluster = Cluster(worlds.documented())
    with pytest.raises(UserError) as caught:
        command.run(options, cluster, Screen(out, io.StringIO(), moves=moves), Scripted())
    assert caught.value.code == 2
    assert (out.getvalue(), cluster.asked) == ("", [])


def test_a_picture_is_cut_to_the_screen_and_says_how_much_is_missing() -> None:
    nodes = [node(f"gpu-{i:04}", 16276) for i in range(1000)]
    watching = Watching((nodes, [pod("late", 20000)]), height=20)
    watching.run(Scripted())
    lines = watching.shown(1)
    assert len(lines) == 19  # and the cursor's
    assert lines[0] == "12:30:05  1000 nodes, 0 pods, 1 waiting"
    assert lines[10].startswith("gpu-0008")
    assert lines[11] == "… 991 more nodes"
    assert lines[14:17] == ["0/16276000 (0%)  ", "", "Waiting for GPU memory: 1 pod"]
    assert lines[18].startswith("default    late  20000 MiB")


@pytest.mark.parametrize("height", range(1, 30))
@pytest.mark.parametrize("details", [False, True])
def test_a_picture_never_is_higher_than_the_screen(height: int, details: bool) -> None:
    watching = Watching(worlds.documented(), height=height)
    watching.run(Scripted(), Options(watch=True, details=details))
    assert len(watching.shown(1)) <= max(height - 1, 1)


def drawn(*sizes: int, below: int = 0, foot: int = 1) -> Page:
    blocks = [[f"{n}.{i}" for i in range(size)] for n, size in enumerate(sizes)]
    return Page(Drawn(["head"], blocks, ["foot"] * foot), [f"below {i}" for i in range(below)], [], "")


@pytest.mark.parametrize(
    ("page", "height", "lines"),
    [
        (drawn(1, 1, 1), 7, ["head", "0.0", "1.0", "2.0", "foot"]),
        (drawn(1, 1, 1), 6, ["head", "0.0", "… 2 more nodes", "foot"]),
        (drawn(1, 1, 1, below=1), 8, ["head", "0.0", "1.0", "2.0", "foot", "below 0"]),
        (drawn(1, 1, 1, below=4), 8, ["head", "0.0", "… 2 more nodes", "foot", "below 0", "…"]),
        (drawn(9), 8, ["head", "0.0", "0.1", "0.2", "…", "foot"]),
        (drawn(2, 2), 7, ["head", "0.0", "0.1", "… 1 more node", "foot"]),
        (drawn(1), 3, ["head"]),
    ],
)
def test_the_nodes_and_what_is_below_share_the_screen(page: Page, height: int, lines: list[str]) -> None:
    assert watch.frame(page, height) == lines


@pytest.mark.parametrize(
    ("line", "width", "cut"),
    [
        ("gpu-a", 5, "gpu-a"),
        ("gpu-ab", 5, "gpu-…"),
        ("\x1b[2mgpu\x1b[0m-a", 5, "\x1b[2mgpu\x1b[0m-a"),
        ("\x1b[2mgpu-a\x1b[0m b", 4, "\x1b[2mgpu…\x1b[0m"),
        ("显卡显卡", 6, "显卡…"),
        ("显卡显卡", 8, "显卡显卡"),
        ("gpu", 1, "…"),
    ],
)
def test_a_line_is_cut_to_the_width_of_the_screen(line: str, width: int, cut: str) -> None:
    assert watch.cut(line, width) == cut


def test_lines_longer_than_the_terminal_do_not_wrap() -> None:
    watching = Watching(worlds.documented(), width=40)
    watching.run(Scripted())
    assert max(map(len, watching.shown(1))) == 40


def test_a_cluster_with_nothing_to_show_says_so_in_the_picture() -> None:
    watching = Watching(([], []))
    watching.run(Scripted())
    assert watching.shown(1)[-1] == "note: this cluster has no nodes."
