"""NVIDIA's config file, variables and flags mean what they mean to NVIDIA's plugin, and mistakes are told."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpushare.gpu import simulated
from gpushare.node.nvidia import config_source
from gpushare.node.nvidia.config_source import Found, Places
from gpushare.node.nvidia.rules import choice, settings
from gpushare.obs.errors import UserError
from tests.node.nvidia import made

CASES = yaml.safe_load(Path(__file__).with_name("configs.yaml").read_text())
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level + 1}: &a{level + 1} {{<<: [{', '.join([f'*a{level}'] * 10)}]}}\n" for level in range(12)
)  # 10¹² keys
MANY = [f"k{number}" for number in range(100, 600)]
WITH_MIG = msgspec.structs.replace(simulated.device(1, "GPU-1", 1), mig=True)


def settle(case: dict[str, Any]) -> settings.Settings:
    return settings.settle(case["file"] or None, case.get("words", {}), case.get("variables", {}))


@pytest.mark.parametrize("case", [c for c in CASES if "sells" in c], ids=lambda case: case["name"])
def test_a_config_that_can_be_served_is_in_force(case: dict[str, Any]) -> None:
    found = settle(case)
    assert [found.replicas, found.resource] == case["sells"]
    assert list(found.notes) == case.get("notes", [])
    said = msgspec.json.decode(msgspec.json.encode(found))
    assert {key: said[key] for key in case.get("has", {})} == case.get("has", {})


@pytest.mark.parametrize("case", [c for c in CASES if "says" in c], ids=lambda case: case["name"])
def test_a_config_that_cannot_be_served_is_refused_in_words_that_help(case: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        settle(case)
    for part in case["says"]:
        assert part in str(caught.value)


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_slices_are_refused_where_there_are_some(strategy: str) -> None:
    without, chosen = simulated.device(0, "GPU-0", 1), made.set_to(mig_strategy=strategy)
    settings.refuse_mig(chosen, [without])
    settings.refuse_mig(made.DEFAULT, [without, WITH_MIG])
    with pytest.raises(UserError, match=f"--mig-strategy={strategy} cannot be served: MIG is enabled on GPU-1"):
        settings.refuse_mig(chosen, [without, WITH_MIG])


# Which config


@pytest.mark.parametrize(
    ("configs", "label", "default", "fallbacks", "chosen"),
    [
        (["a", "b"], "b", "a", [], "b"),
        (["a", "b"], "", "a", [], "a"),
        (["a", "default"], "", "", ["named", "single"], "default"),
        (["only"], "", "", ["named", "single"], "only"),
        (["a", "b"], "", "", ["named", "single", "empty"], None),
        ([], "", "", ["empty"], None),
    ],
)
def test_the_label_chooses_then_the_default_then_the_fallbacks(
    configs: list[str], label: str, default: str, fallbacks: list[str], chosen: str | None
) -> None:
    assert choice.choose(configs, label, default, fallbacks) == chosen


@pytest.mark.parametrize(
    ("configs", "label", "default", "fallbacks", "says"),
    [
        (["a", "b"], "c", "a", ["single"], 'there is no config "c": label nvidia.com/device-plugin.config=c'),
        (["a"], "", "c", [], 'there is no config "c": DEFAULT_CONFIG=c (try: one of: a)'),
        (["a", "b"], "", "", ["named", "single"], "no config is chosen for this node: there are a, b"),
        ([], "", "", ["named", "single"], "there are none"),
        (MANY, "x", "", [], "one of: k100, k101, k102, k103, k104, k105, k106, k107, k108, k109, 490 more)"),
        (MANY, "", "", ["single"], "k109, 490 more; none is called default"),
        (["a"], "", "", ["first"], 'FALLBACK_STRATEGIES: unknown value "first"'),
    ],
)
def test_a_choice_that_finds_nothing_says_what_there_is(
    configs: list[str], label: str, default: str, fallbacks: list[str], says: str
) -> None:
    with pytest.raises(UserError) as caught:
        choice.choose(configs, label, default, fallbacks)
    assert says in str(caught.value)


# Files


def test_a_mounted_configmap_is_read_through_its_links(tmp_path: Path) -> None:
    (tmp_path / "..2026_1").mkdir()
    (tmp_path / "..2026_1" / "a").write_text("version: v1")
    (tmp_path / "..data").symlink_to("..2026_1")
    (tmp_path / "a").symlink_to("..data/a")
    assert config_source.read(Places(folder=str(tmp_path)), "") == Found("a", "version: v1")
    (tmp_path / "..2026_2").mkdir()
    (tmp_path / "..2026_2" / "a").write_text("version: v2")
    (tmp_path / "..new").symlink_to("..2026_2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert config_source.read(Places(folder=str(tmp_path)), "") == Found("a", "version: v2")


def test_without_a_place_the_config_is_empty() -> None:
    assert config_source.read(Places(), "ignored") == Found("(empty)", "")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: [", "is not YAML"),
        (b"a: b: c", "is not YAML: mapping values are not allowed here in line 1"),
        (b"\xff\xfe\x00", "it is not UTF-8"),
        (b"x" * (2 << 20), "it has more than 1,048,576 bytes"),
        (b"[" * 100_000, "is not YAML"),
        (b"version: !!bool x", "is not YAML"),
        (b"version: !!timestamp x", "is not YAML"),
        (MERGED.encode(), "it has more than 20 aliases (*name)"),
    ],
    ids=["unfinished", "no yaml", "bytes", "huge", "deep", "no bool", "no time", "aliases of aliases"],
)
def test_a_file_that_is_no_config_is_refused_with_its_name(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        config_source.settle(config_source.read(Places(file=str(file)), ""), {}, {})
    assert "config.yaml" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("odd", ['"\\uD800"', '"\\0"', "0x" + "f" * 5000], ids=["half a pair", "zero", "huge"])
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{{? {odd} : 1}}", "(a key)"),
        ("{{flags: {{? {odd} : 1}}}}", "flags.(a key)"),
        ("{{flags: {{migStrategy: {odd}}}}}", "flags.migStrategy"),
        ("{{flags: {{plugin: {{deviceListStrategy: [envvar, {odd}]}}}}}}", "flags.plugin.deviceListStrategy[1]"),
        ("{{sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: {odd}}}]}}}}}}", "resources[0].replicas"),
    ],
)
def test_what_could_be_neither_used_nor_shown_is_refused_with_its_place(text: str, where: str, odd: str) -> None:
    with pytest.raises(UserError) as caught:
        config_source.settle(Found("c", text.format(odd=odd)), {}, {})
    assert f"{where} cannot be read" in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("places", [Places(file="/none/config"), Places(folder="/none")])
def test_a_place_that_is_not_there_is_named(places: Places) -> None:
    with pytest.raises(UserError, match=r"/none.* cannot be read: No such file or directory"):
        config_source.read(places, "")
