"""`-o`: the formats that both commands know, and an answer in those for programs."""

from typing import Final

import msgspec

WIDE, JSON, YAML = FORMATS = ("wide", "json", "yaml")
FOR_PROGRAMS: Final = (JSON, YAML)


def dump(answer: object, output: str) -> str:
    """The answer as JSON or YAML, with its last line end."""
    if output == JSON:
        return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"
    import yaml  # costs time to load

    text: str = yaml.safe_dump(msgspec.to_builtins(answer), sort_keys=False, allow_unicode=True)
    return text
