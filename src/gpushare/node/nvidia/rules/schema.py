"""The config file of NVIDIA's device plugin (`version: v1`) as data, read strictly.

Pure. NVIDIA's plugin skips keys that it does not know, so a misspelt one goes unnoticed; here it is refused, with the
nearest key that exists. What the keys mean is decided in `settings`.
"""

import difflib
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gpushare.obs.errors import UserError

VERSION: Final = "v1"
EMPTY: Final[dict[str, Any]] = {}
NO_FILE: Final = "the config is not a map of keys"
NOT_KNOWN: Final = 'config: unknown key "{key}" in {where}'
WRONG: Final = "config: {path} cannot be read"
CORRECT: Final = "correct it in the config file"
LONGEST_NUMBER: Final = 63  # bits


class Keys(msgspec.Struct, frozen=True, rename="camel"):
    """A map of the file. Every key may be missing."""


class PluginFlags(Keys, frozen=True):
    pass_device_specs: bool | None = None
    device_list_strategy: str | list[str] | None = None
    device_id_strategy: str | None = msgspec.field(default=None, name="deviceIDStrategy")
    cdi_annotation_prefix: str | None = None
    nvidia_ctk_path: str | None = msgspec.field(default=None, name="nvidiaCTKPath")
    container_driver_root: str | None = None
    shared_devices_allocation_policy: str | None = None


class DiscoveryFlags(Keys, frozen=True):
    """Of NVIDIA's feature discovery, which reads the same file. Nothing here uses them."""

    oneshot: bool | None = None
    no_timestamp: bool | None = None
    sleep_interval: str | int | None = None
    output_file: str | None = None
    machine_type_file: str | None = None


class Flags(Keys, frozen=True):
    mig_strategy: str | None = None
    fail_on_init_error: bool | None = None
    mps_root: str | None = None
    nvidia_driver_root: str | None = None
    nvidia_dev_root: str | None = None
    gdrcopy_enabled: bool | None = None
    gds_enabled: bool | None = None
    mofed_enabled: bool | None = None
    use_node_feature_api: bool | None = msgspec.field(default=None, name="useNodeFeatureAPI")
    device_discovery_strategy: str | None = None
    plugin: PluginFlags = PluginFlags()
    gfd: DiscoveryFlags = DiscoveryFlags()


class Named(Keys, frozen=True):
    pattern: str | None = None
    name: str | None = None


class Resources(Keys, frozen=True):
    gpus: list[Named] | None = None
    mig: list[Named] | None = None


class Replicated(Keys, frozen=True):
    """One resource that is shared. `devices`: all, a number, or a list."""

    name: str | None = None
    replicas: int | None = None
    rename: str | None = None
    devices: str | int | list[str | int] | None = None


class Shared(Keys, frozen=True):
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None
    resources: list[Replicated] | None = None


class Sharing(Keys, frozen=True):
    time_slicing: Shared | None = None
    mps: Shared | None = None


class Imex(Keys, frozen=True):
    channel_ids: list[int] | None = msgspec.field(default=None, name="channelIDs")
    required: bool | None = None


class File(Keys, frozen=True):
    version: str = VERSION
    flags: Flags = Flags()
    resources: Resources = Resources()
    sharing: Sharing = Sharing()
    imex: Imex = Imex()


def read(data: object) -> File:
    """`data`: the file as YAML or JSON has it; None if it is empty."""
    if not isinstance(data, Mapping | None):
        raise UserError(NO_FILE, f"it is a {type(data).__name__}", "begin it with: version: v1")
    filled = _checked(data or EMPTY, File, "")
    try:
        return msgspec.convert(filled, File)
    except msgspec.ValidationError as error:
        found = re.fullmatch(r"(?P<why>.*?)(?: - at `\$\.?(?P<path>.*)`)?", str(error), re.DOTALL)
        assert found is not None  # it matches everything
        why = found["why"].replace("`", "").replace(" | null", "")
        raise UserError(WRONG.format(path=found["path"] or "it"), why, CORRECT) from None


def unknown(where: str, word: str, known: Sequence[str]) -> UserError:
    """A word that is none of those that are possible there."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.0)
    return UserError(f'{where}: unknown value "{word:.60}"', f"possible: {', '.join(known)}", f"{where}: {close[0]}")


def _checked(data: Mapping[Any, Any], kind: type[msgspec.Struct], path: str) -> dict[str, Any]:
    """Without the keys that have no value. Refuses keys that do not exist."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key in data:
        _refuse_odd(key, f"{path}(a key)")
        if key not in fields:
            (close,) = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.0)
            where, why = path.removesuffix(".") or "the config", f"keys there: {', '.join(fields)}"
            raise UserError(NOT_KNOWN.format(key=f"{key}"[:60], where=where), why, f"{path}{close}")
    return {key: _within(value, fields[key].type, f"{path}{key}") for key, value in data.items() if value is not None}


def _within(value: object, kind: Any, path: str) -> object:
    """The same for the maps in a value, where the schema has maps."""
    kinds = (kind, *typing.get_args(kind))
    inner = next((one for one in kinds if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)
    if inner is not None and isinstance(value, Mapping):
        return _checked(value, inner, f"{path}.")
    lists = next((one for one in kinds if typing.get_origin(one) is list), None)
    if lists is not None and isinstance(value, list):
        return [_within(one, typing.get_args(lists)[0], f"{path}[{at}]") for at, one in enumerate(value)]
    _refuse_odd(value, path)
    return value


def _refuse_odd(value: object, path: str) -> None:
    """What could be neither used nor shown. YAML has escapes for every character, and numbers of any length."""
    if isinstance(value, str) and not value.isprintable():
        raise UserError(WRONG.format(path=path), "it has characters that cannot be printed", CORRECT)
    if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:
        raise UserError(WRONG.format(path=path), "it is too large a number", CORRECT)
