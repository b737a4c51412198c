"""The dashboard's words: the same in three languages, all of them there, none too many."""

import json
import re
from pathlib import Path

import pytest

from tests.dashboard.static import own_files

FOLDER = own_files.FOLDER / "messages"
LANGUAGES = ("en", "ko", "zh")
KINDS = sorted({path.name.removesuffix("en.json") for path in FOLDER.glob("*en.json")})
PLACE = re.compile(r"\{(\w+)")
LITERAL = re.compile(r"'([a-z]\w*(?:\.\w+)*)'")
CALLED = re.compile(r"\bt\('([^']+)'")
MADE = re.compile(r"\b(?:t|has)\(`([a-z]\w*\.(?:\w+\.)*)\$\{")
NAMED = re.compile(r"\bnamed\('([^']+)'")


def words(kind: str, language: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((FOLDER / f"{kind}{language}.json").read_text("utf-8"))
    return found


def all_words() -> dict[str, str]:
    return {key: text for kind in KINDS for key, text in words(kind, "en").items()}


def beginnings(text: str) -> set[str]:
    """Of keys whose ends are only known in the browser."""
    return {*MADE.findall(text), *(f"{group}." for group in NAMED.findall(text))}


def scripts() -> str:
    return "\n".join(path.read_text("utf-8") for path in own_files.scripts())


@pytest.mark.parametrize("language", LANGUAGES[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_every_language_has_the_same_keys_in_the_same_order(kind: str, language: str) -> None:
    assert list(words(kind, language)) == list(words(kind, "en"))


@pytest.mark.parametrize("language", LANGUAGES[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_every_language_has_the_same_places_for_values(kind: str, language: str) -> None:
    other = words(kind, language)
    for key, text in words(kind, "en").items():
        assert set(PLACE.findall(other[key])) == set(PLACE.findall(text)), key


@pytest.mark.parametrize("language", LANGUAGES[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_translated(kind: str, language: str) -> None:
    english = words(kind, "en")
    same = [key for key, text in words(kind, language).items() if text == english[key] and len(text.split()) > 3]
    assert same == []


def test_no_key_stands_in_two_files() -> None:
    assert sum(len(words(kind, "en")) for kind in KINDS) == len(all_words())


def test_every_key_that_a_page_asks_for_exists() -> None:
    known = all_words()
    text = scripts()
    heads = {key.split(".")[0] for key in known if "." in key}
    dotted = {key for key in LITERAL.findall(text) if "." in key and key.split(".")[0] in heads}
    assert sorted((dotted | set(CALLED.findall(text))) - known.keys() - set(NAMED.findall(text))) == []


def test_every_key_made_of_parts_has_words_that_begin_so() -> None:
    known = all_words()
    for beginning in beginnings(scripts()):
        assert any(key.startswith(beginning) for key in known), beginning


def test_no_words_are_left_that_no_page_asks_for() -> None:
    text = scripts()
    literal, begun = set(LITERAL.findall(text)), tuple(beginnings(text))
    assert [key for key in all_words() if key not in literal and not key.startswith(begun)] == []


def test_files_end_with_a_line_and_are_readable_as_they_are() -> None:
    for path in Path(FOLDER).glob("*.json"):
        text = path.read_text("utf-8")
        assert text.endswith("}\n")
        assert "\\u" not in text
