"""labelSelector and fieldSelector, compiled once and then run on every object and every watch event. Pure.

The store keeps labels and selectable fields of each object beside its bytes, so that selecting needs no decoding.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpushare.devcluster.apiserver import status

Labels = Mapping[str, str]
Fields = Mapping[str, str]
Match = Callable[[Labels, Fields], bool]

_TERM: Final = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[\w./-]+)
      | (?P<set_key>[\w./-]+)\s+(?P<set_op>in|notin)\s*\((?P<values>[^)]*)\)
      | (?P<key>[\w./-]+)\s*(?:(?P<op>==|!=|=)\s*(?P<value>[\w.-]*))?
    )\s*(?:,|$)""",
    re.VERBOSE | re.ASCII,
)


def everything(labels: Labels, fields: Fields) -> bool:
    """The selector that selects all."""
    return True


def compile(label_selector: str, field_selector: str, selectable: Sequence[str]) -> Match:
    """One test for both selectors of a request. A selector that cannot be read is a bad request."""
    of_labels = _label_tests(label_selector)
    of_fields = _field_tests(field_selector, selectable)
    if not of_labels and not of_fields:
        return everything

    def match(labels: Labels, fields: Fields) -> bool:
        for test in of_fields:  # a loop, because this runs for each of 50,000 pods
            if not test(fields):
                return False
        return all(test(labels) for test in of_labels) if of_labels else True

    return match


def written(selector: Mapping[str, Any]) -> str:
    """A selector object of a Deployment or Job, as the text that `labelSelector` takes."""
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for rule in selector.get("matchExpressions") or []:
        key, values = rule["key"], f"({','.join(sorted(rule.get('values') or []))})"
        forms = {"In": f"{key} in {values}", "NotIn": f"{key} notin {values}", "Exists": key, "DoesNotExist": f"!{key}"}
        terms.append(forms[rule["operator"]])
    return ",".join(terms)


def _label_tests(text: str) -> list[Callable[[Labels], bool]]:
    tests: list[Callable[[Labels], bool]] = []
    at = 0
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None:
            raise status.bad_request(f"unable to parse requirement: found {text[at:]!r} in label selector {text!r}")
        tests.append(_label_test(term))
        at = term.end()
    return tests


def _label_test(term: re.Match[str]) -> Callable[[Labels], bool]:
    if term["absent"]:
        key = term["absent_key"]
        return lambda labels: key not in labels
    if term["set_op"]:
        key, values = term["set_key"], {value.strip() for value in term["values"].split(",")}
        if term["set_op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values  # an absent key is "not in" as well
    key, operator, value = term["key"], term["op"], term["value"]
    if operator is None:
        return lambda labels: key in labels
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _field_tests(text: str, selectable: Sequence[str]) -> list[Callable[[Fields], bool]]:
    tests: list[Callable[[Fields], bool]] = []
    for term in filter(None, re.split(r"(?<!\\),", text)):
        match = re.fullmatch(r"([^=!]+)(==|!=|=)(.*)", term)
        if match is None:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match[1], match[2], re.sub(r"\\(.)", r"\1", match[3])
        if path not in selectable:
            raise status.bad_request(f"field label not supported: {path}")
        tests.append(_field_test(path, value, operator != "!="))
    return tests


def _field_test(path: str, value: str, wanted: bool) -> Callable[[Fields], bool]:
    return lambda fields: (fields.get(path, "") == value) is wanted
