"""`gpushare validate --here`: the checks of this machine that need no cluster, once, for people."""

from typing import Final

from gpushare.core.annotations.validation import Checks
from gpushare.validate import checks
from gpushare.validate.keeper import Keeper
from gpushare.validate.machine.asking import Asking
from gpushare.validate.machine.host import Places
from gpushare.validate.ready_files import ReadyFiles

NOT_PASSED: Final = 1


class Nothing(ReadyFiles):
    """Nobody waits for files of a look by hand, and those of a validator that runs here stay."""

    def keep(self, passed: object) -> None:
        pass


async def look(places: Places) -> Checks:
    """Driver and toolkit."""
    files = Nothing()
    made: dict[str, checks.Check] = {
        "driver": checks.Driver(places, Asking(places).ask, lambda: files.container_ready),
        "toolkit": checks.Toolkit(places),
    }
    keeper = Keeper(made, files, lambda said: None, lambda check, said, before: None)
    await keeper.look()
    return keeper.said
