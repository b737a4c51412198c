"""The browser's part keeps to its rules: a strict content security policy, addresses that work below any path, colours
that can be read, and a size that a slow line can carry."""

import re
from collections.abc import Iterator

import pytest

from tests.dashboard.static import own_files

FIRST_VIEW = 40 * 1024  # bytes, compressed
ATTRIBUTE = re.compile(r"""\s(?:style|on[a-z]+)=["']""")
RUNS_TEXT = re.compile(
    r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|javascript:"
)
ABSOLUTE = re.compile(r"""https?://|(?:src|href|action)=["']/|url\(|fetch\(['"`]/|(?:from|import\()\s*['"`]/""")
VARIABLE = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")
TEXTS = ("fg", "muted", "accent", "bad", "over", "warn", "good")
GROUNDS = ("bg", "raised")
MARKS = ("granted", "granted-2", "other", "other-2", "used", "idle", "over", "good", "warn", "bad")


def ours() -> Iterator[tuple[str, str]]:
    for path in [own_files.FOLDER / "index.html", *own_files.scripts(), *own_files.styles()]:
        yield str(path.relative_to(own_files.FOLDER)), path.read_text("utf-8")


def test_no_file_has_a_style_or_a_handler_in_an_attribute() -> None:
    assert [name for name, text in ours() if ATTRIBUTE.search(text)] == []


def test_no_script_makes_code_or_markup_of_text() -> None:
    assert [name for name, text in ours() if RUNS_TEXT.search(text)] == []


def test_all_addresses_are_relative() -> None:
    assert [(name, found[0]) for name, text in ours() if (found := ABSOLUTE.search(text))] == []


def test_the_page_has_neither_scripts_nor_styles_in_it() -> None:
    page = (own_files.FOLDER / "index.html").read_text("utf-8")
    assert "<style" not in page
    assert re.findall(r"<script[^>]*>(?!</script>)", page) == []


def test_everything_that_the_page_names_is_there() -> None:
    page = (own_files.FOLDER / "index.html").read_text("utf-8")
    for name in re.findall(r'(?:src|href)="static/([^"]+)"', page):
        assert (own_files.FOLDER / name).is_file(), name


def test_every_import_leads_to_a_file() -> None:
    for path in own_files.scripts():
        for name in own_files.IMPORT.findall(path.read_text("utf-8")):
            assert (path.parent / name).is_file(), f"{path.name}: {name}"


def test_what_the_first_page_loads_of_ours_is_small() -> None:
    assert own_files.packed(own_files.of_first_view()) <= FIRST_VIEW


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_marks_can_be_told_from_their_ground(scheme: str) -> None:
    colors = palettes()[scheme]
    low = [(text, ground) for text in TEXTS for ground in GROUNDS if contrast(colors[text], colors[ground]) < 4.5]
    assert low == []
    assert [mark for mark in MARKS if contrast(colors[mark], colors["free"]) < 3] == []


def palettes() -> dict[str, dict[str, str]]:
    text = (own_files.FOLDER / "app.css").read_text("utf-8")
    light, dark = text.split("@media (prefers-color-scheme: dark)", 1)
    return {"light": dict(VARIABLE.findall(light)), "dark": dict(VARIABLE.findall(dark))}


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
