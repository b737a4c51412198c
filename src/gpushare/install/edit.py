"""Changes the text of a manifest: one flag, one mount, one volume. Every other byte stays, comments too.

The positions come from the YAML parser, the change is made in the text. Then the text is parsed again: it must be
exactly the object that is wanted, or the manifest is refused. So no way of writing YAML leads to a wrong manifest.
"""

import copy
from collections.abc import Callable
from typing import Final

import yaml

from gpushare.install import flags
from gpushare.install.entries import FOLDER, Object
from gpushare.install.manifest import VOLUME, Manifest, parsed
from gpushare.install.refusals import refused

MOUNT: Final[Object] = {"mountPath": FOLDER, "name": VOLUME, "readOnly": True}
VOLUME_ENTRY: Final[Object] = {"hostPath": {"path": FOLDER, "type": "Directory"}, "name": VOLUME}
Change = tuple[int, int, str]  # from, to, and what comes there


def edited(text: bytes, manifest: Manifest, flag: str, value: str) -> bytes:
    """The manifest with this flag set, and our folder mounted. Unchanged if it has all of it."""
    wanted = _wanted(manifest, flag, value)
    result = text.decode("utf-8")
    newline = "\r\n" if "\r\n" in result else "\n"
    steps: list[Callable[[_Text], Change | None]] = [
        lambda t: _set_flag(t, flag, value),
        lambda t: None if manifest.has_mount else _append(t, t.container, "volumeMounts", MOUNT),
        lambda t: None if manifest.has_volume else _append(t, t.spec, "volumes", VOLUME_ENTRY),
    ]
    try:
        for step in steps:
            change = step(_Text(result, newline))
            if change is not None:
                begin, end, new = change
                result = result[:begin] + new + result[end:]
    except (_NotFound, yaml.YAMLError) as error:
        raise _not_editable(manifest, str(error)) from None
    made = result.encode("utf-8")
    if parsed(made, manifest.name) != wanted:
        raise _not_editable(manifest, "the edited text would mean something else than it should")
    return made


class _NotFound(Exception):
    """The text is not written in the way that is needed."""


class _Text:
    """A manifest with the positions of its parts."""

    def __init__(self, text: str, newline: str) -> None:
        self.text, self.newline = text, newline
        self.root = yaml.compose(text, yaml.SafeLoader)
        self.spec = self.value(self.root, "spec")
        containers = self.value(self.spec, "containers")
        assert isinstance(containers, yaml.SequenceNode)
        (self.container,) = containers.value

    def find(self, node: yaml.Node | None, key: str) -> yaml.Node | None:
        assert isinstance(node, yaml.MappingNode)
        found = [value for name, value in node.value if name.value == key]
        if len(found) > 1:
            raise _NotFound(f"{key} is written twice")
        return found[0] if found else None

    def value(self, node: yaml.Node | None, key: str) -> yaml.Node:
        found = self.find(node, key)
        if found is None:
            raise _NotFound(f"{key} is missing")
        return found

    def after_line(self, node: yaml.Node) -> int:
        """The position behind the last line of a part."""
        found = self.text.find("\n", _end(node))
        return len(self.text) if found < 0 else found + 1

    def line(self, position: int, column: int, words: str) -> Change:
        """A new line at this position; the line before it may be the last of the text, without an end."""
        ended = position == 0 or self.text[position - 1] == "\n"
        return position, position, ("" if ended else self.newline) + " " * column + words + self.newline


def _wanted(manifest: Manifest, flag: str, value: str) -> Object:
    pod = copy.deepcopy(manifest.pod)
    (container,) = pod["spec"]["containers"]
    place = flags.at(manifest.words, flag)
    command = container["command"]
    if place is None:
        command.insert(1, f"--{flag}={value}")
    else:
        number, before = place
        words = command if number < len(command) else container["args"]
        words[number if words is command else number - len(command)] = before + value
    if not manifest.has_mount:
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), MOUNT]
    if not manifest.has_volume:
        pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), VOLUME_ENTRY]
    return pod


def _set_flag(text: _Text, flag: str, value: str) -> Change | None:
    command, arguments = text.value(text.container, "command"), text.find(text.container, "args")
    given = [item for node in (command, arguments) if isinstance(node, yaml.SequenceNode) for item in node.value]
    place = flags.at([item.value for item in given], flag)
    if place is not None:
        number, before = place
        item, word = given[number], before + value
        return None if item.value == word else (item.start_mark.index, item.end_mark.index, word)
    assert isinstance(command, yaml.SequenceNode)
    first, word = command.value[0], f"--{flag}={value}"
    if command.flow_style:
        return first.end_mark.index, first.end_mark.index, f", {word}"
    return text.line(text.after_line(first), command.start_mark.column, f"- {word}")


def _append(text: _Text, owner: yaml.Node, key: str, entry: Object) -> Change:
    """One entry more in a list, which may not be there yet."""
    if not isinstance(owner, yaml.MappingNode) or owner.flow_style:
        raise _NotFound("it is written in braces, as JSON is")
    found = text.find(owner, key)
    if found is None:
        last = max((value for _, value in owner.value), key=_end)
        column = owner.start_mark.column
        return text.line(text.after_line(last), column, f"{key}:{text.newline}{_block(text, entry, column)}")
    if not isinstance(found, yaml.SequenceNode):
        raise _NotFound(f"{key} is not a list")
    if found.flow_style:
        last_item = found.value[-1] if found.value else None
        position = last_item.end_mark.index if last_item is not None else found.start_mark.index + 1
        return position, position, (", " if last_item is not None else "") + _flow(entry)
    column = found.start_mark.column
    return text.line(text.after_line(found.value[-1]), 0, _block(text, entry, column))


def _block(text: _Text, entry: Object, column: int) -> str:
    """As kubeadm writes it."""
    lines = yaml.safe_dump([entry]).splitlines()
    return text.newline.join(" " * column + line for line in lines)


def _flow(entry: Object) -> str:
    return yaml.safe_dump(entry, default_flow_style=True, width=1000).strip()


def _end(node: yaml.Node) -> int:
    """Where the last word of this part ends: marks of blocks are behind the comments that follow."""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        return max(_end(value) for _, value in node.value)
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return max(map(_end, node.value))
    literal = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")  # its end is the line behind it
    return int(node.end_mark.index) - (1 if literal else 0)


def _not_editable(manifest: Manifest, why: str) -> Exception:
    return refused(f"{manifest.name} is written in a way that this command cannot change", why)
