"""The loop: ready files are there exactly while their checks pass, and everybody hears of changes only."""

from pathlib import Path

import pytest

from gpushare.core.annotations.validation import Checks
from gpushare.obs.errors import UserError
from gpushare.validate.keeper import Keeper
from gpushare.validate.ready_files import ReadyFiles
from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict

ALL = ("driver", "toolkit", "plugin", "mps", "workload")


class Fake:
    def __init__(self) -> None:
        self.says, self.asked, self.voided = verdict.passed("fine"), 0, 0

    async def verdict(self) -> Verdict:
        self.asked += 1
        return self.says

    def blocked(self) -> None:
        self.voided += 1


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 0.0
        self.checks = {name: Fake() for name in ALL}
        self.said: list[Checks] = []
        self.told: list[tuple[str, str, bool]] = []
        self.files = ReadyFiles(folder)
        self.keeper = Keeper(
            self.checks, self.files, self.said.append, lambda check, said, before: self.told.append(
                (check, said.state, before)
            ), contents={"driver": lambda: "IS_HOST_DRIVER=true\n"}, now=lambda: self.now, clock=lambda: self.now,
        )  # fmt: skip

    @property
    def there(self) -> list[str]:
        return sorted(file.name for file in self.folder.iterdir()) if self.folder.exists() else []

    @property
    def states(self) -> list[str]:
        return [check.state for check in self.keeper.said.values()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "validations")


async def test_all_files_are_there_when_all_checks_have_passed(world: World) -> None:
    await world.keeper.look()
    assert world.there == ["cuda-ready", "driver-ready", "plugin-ready", "toolkit-ready"]
    assert (world.folder / "driver-ready").read_text() == "IS_HOST_DRIVER=true\n"
    assert (world.folder / "plugin-ready").read_text() == ""
    assert world.states == ["passed"] * 5


async def test_a_failure_takes_its_file_away_and_those_of_the_checks_after_it(world: World) -> None:
    await world.keeper.look()
    world.checks["toolkit"].says = verdict.failed("no runtime", "install it")
    await world.keeper.look()
    assert world.there == ["driver-ready"]
    assert world.states == ["passed", "failed", "waiting", "waiting", "waiting"]
    assert world.keeper.said["workload"].why == "waits for toolkit"
    assert world.checks["workload"].voided == 1
    assert world.checks["plugin"].asked == 1


async def test_a_skipped_check_keeps_nobody_from_passing_and_has_no_file(world: World) -> None:
    world.checks["mps"].says = world.checks["workload"].says = verdict.skipped("not here")
    await world.keeper.look()
    assert world.there == ["driver-ready", "plugin-ready", "toolkit-ready"]


async def test_a_check_that_fails_and_heals_is_told_once_each(world: World) -> None:
    await world.keeper.look()
    world.told.clear()
    world.checks["driver"].says = verdict.failed("gone", "install it")
    await world.keeper.look()
    await world.keeper.look()
    world.checks["driver"].says = verdict.passed("fine")
    await world.keeper.look()
    assert [entry for entry in world.told if entry[0] == "driver"] == [
        ("driver", "failed", False), ("driver", "passed", True),
    ]  # fmt: skip


async def test_nothing_is_said_while_nothing_changes(world: World) -> None:
    for second in range(4):
        world.now = second
        await world.keeper.look()
    assert len(world.said) == 1


async def test_a_state_keeps_its_time_although_its_reason_changes(world: World) -> None:
    world.checks["driver"].says = verdict.failed("a", "x")
    await world.keeper.look()
    world.now = 60.0
    world.checks["driver"].says = verdict.failed("b", "x")
    await world.keeper.look()
    assert (world.keeper.said["driver"].since, world.keeper.said["driver"].why) == ("1970-01-01T00:00:00Z", "b")
    world.now = 120.0
    world.checks["driver"].says = verdict.passed("fine")
    await world.keeper.look()
    assert world.keeper.said["driver"].since == "1970-01-01T00:02:00Z"


async def test_a_file_that_somebody_deletes_or_changes_is_put_back(world: World) -> None:
    await world.keeper.look()
    (world.folder / "driver-ready").write_text("IS_HOST_DRIVER=false\n")
    (world.folder / "plugin-ready").unlink()
    await world.keeper.look()
    assert (world.folder / "driver-ready").read_text() == "IS_HOST_DRIVER=true\n"
    assert "plugin-ready" in world.there


async def test_at_the_end_all_files_go_and_what_others_wrote_stays(world: World) -> None:
    await world.keeper.look()
    (world.folder / ".driver-ctr-ready").touch()
    assert world.files.container_ready
    world.files.remove()
    assert world.there == [".driver-ctr-ready"]


async def test_a_folder_that_cannot_be_written_is_said_and_the_loop_goes_on(world: World, tmp_path: Path) -> None:
    world.folder.touch()
    await world.keeper.look()
    assert "cannot be written" in world.keeper.failure
    world.folder.unlink()
    await world.keeper.look()
    assert world.keeper.failure == ""
    with pytest.raises(UserError, match="cannot be written"):
        ReadyFiles(tmp_path / "validations" / "driver-ready").keep({"driver": ""})
