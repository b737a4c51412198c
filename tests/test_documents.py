"""Every link, anchor and file path in documents, manifests and comments names something that exists."""

from pathlib import Path

import pytest

from tests.support import links
from tests.support.links import ROOT

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
MANIFESTS = [*sorted((ROOT / "deploy").rglob("*.yaml")), *sorted((ROOT / "examples").rglob("*.yaml"))]
SOURCES = [ROOT / "Makefile", ROOT / "pyproject.toml", *sorted((ROOT / "src").rglob("*.py"))]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_link_leads_somewhere(document: Path) -> None:
    targets = links.links(document.read_text("utf-8"))
    assert [target for target in targets if links.broken_link(document, target)] == []


@pytest.mark.parametrize("document", [*DOCUMENTS, *MANIFESTS], ids=named)
def test_every_path_in_a_document_exists(document: Path) -> None:
    assert [path for path in links.paths(document.read_text("utf-8")) if not links.is_there(path)] == []


def test_every_path_in_the_source_exists() -> None:
    missing = {
        f"{named(file)}: {path}"
        for file in SOURCES
        for path in links.paths(file.read_text("utf-8"))
        if not links.is_there(path)
    }
    assert missing == set()


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_headings_become_anchors_as_on_github() -> None:
    text = "# Is the `extender` asked?\n\n## A & B\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n"
    assert links.anchors(text) == {"is-the-extender-asked", "a--b", "twice", "twice-1"}


def test_a_link_that_leads_nowhere_is_found() -> None:
    document = ROOT / "README.md"
    assert links.links("[a](docs/nodes.md#x) [b](https://x.y) ![c](a.svg)") == ["docs/nodes.md#x", "a.svg"]
    assert links.broken_link(document, "docs/no-such-file.md")
    assert links.broken_link(document, "docs/nodes.md#no-such-heading")
    assert links.broken_link(document, "../outside.md")
    assert not links.broken_link(document, "docs/nodes.md")


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "See `core/facts/names.py` and `core/no_such.py`, deploy/*.yaml, tests/no-such, and/or either/or."
    assert [(path, links.is_there(path)) for path in links.paths(text)] == [
        ("core/facts/names.py", True),
        ("core/no_such.py", False),
        ("deploy/*.yaml", True),
        ("tests/no-such", False),
    ]
