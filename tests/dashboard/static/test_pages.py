"""The pages know every word that the answers use: codes of refusals, states of nodes, ways of pinning. And they are
small."""

import gzip
import re
from pathlib import Path

import yaml

from gpushare.core.explain import report, waiting
from gpushare.core.facts import intree, kinds
from gpushare.core.facts.model import Pin
from gpushare.core.ledger import ledger
from gpushare.view import by_count
from tests.core import codes
from tests.dashboard.static import own_files, test_messages

OF_FRAME = ("overview.js", "login.js")
TOGETHER = 20 * 1024  # bytes, compressed as one
OURS = (report.NO_REQUEST, report.FITS, report.BOUND, report.ENDED, report.KEPT_OFF, report.NOT_ADMITTED)
SCHEDULERS = (intree.CORDONED, intree.TAINT, intree.NODE_SELECTOR, intree.NODE_AFFINITY, intree.INSUFFICIENT)
SOLD = re.compile(r'Refusal\(\s*"(\w+)"')
EXAMPLE = re.compile(r"const EXAMPLE = `(.*?)`;", re.DOTALL)


def test_every_code_has_a_name_in_the_readers_language() -> None:
    by_number = SOLD.findall(Path(by_count.__file__).read_text("utf-8"))
    asked = {*codes.every(), *by_number, *OURS, *SCHEDULERS, ledger.DECIDED.code, waiting.NOT_LOOKED_AT}
    assert by_number
    assert {f"code.{code}" for code in asked} == {key for key in test_messages.all_words() if key.startswith("code.")}


def test_every_way_of_pinning_has_words() -> None:
    words = test_messages.all_words()
    for pin in Pin:
        assert f"node.pin.{pin.value}" in words
        assert f"health.pin.{pin.value}" in words


def test_the_example_asks_for_gpu_memory() -> None:
    found = EXAMPLE.search((own_files.FOLDER / "js" / "pages" / "whatif.js").read_text("utf-8"))
    assert found is not None
    limits = yaml.safe_load(found[1])["spec"]["containers"][0]["resources"]["limits"]
    assert set(limits) & set(kinds.BY_RESOURCE)


def test_the_pages_are_small() -> None:
    scripts = [path for path in own_files.scripts() if path.parent.name in ("pages", "parts")]
    paths = [*(path for path in scripts if path.name not in OF_FRAME), own_files.FOLDER / "pages.css"]
    assert len(gzip.compress(b"".join(path.read_bytes() for path in paths), mtime=0)) <= TOGETHER
