"""The policy ConfigMaps: what may be written there, what it means, and what is said about everything else."""

import msgspec
import pytest

from gpushare.core.facts.scoring import configmaps
from gpushare.core.facts.scoring.settings import KETI_LONG, KETI_SHORT, NEUTRAL, Settings

SHORT, LONG = "gpu-scheduler-configmap", "gpu-scheduler-policy"


def settings(short: object = ..., long: object = ...) -> Settings:
    read = configmaps.read({name: data for name, data in ((SHORT, short), (LONG, long)) if data is not ...})
    assert isinstance(read, Settings), read
    return read


def sentences(data: object, name: str = LONG) -> list[str]:
    read = configmaps.read({name: data})
    assert isinstance(read, list), read
    assert {problem.config_map for problem in read} == {name}
    return [problem.sentence for problem in read]


def test_without_a_configmap_nothing_is_asked_for() -> None:
    assert configmaps.read({}) == NEUTRAL
    assert configmaps.read({"kube-root-ca.crt": {"ca.crt": "x"}}) == NEUTRAL


def test_what_is_not_written_is_the_default_of_the_longest_configmap_that_exists() -> None:
    assert settings(short={}) == settings(short=None) == KETI_SHORT
    assert settings(long={}) == settings(long=None) == settings(short={}, long={}) == KETI_LONG


def test_keys_of_the_longer_configmap_win() -> None:
    both = settings(
        short={"node-gpu-score-weight": "1 0", "pod-re-schedule-permit": "false"},
        long={"node-gpu-score-weight": "0.5:0.5"},
    )
    assert (both.node_weight, both.gpu_weight, both.reschedules) == (0.5, 0.5, False)


def test_what_keti_ships_is_read_as_it_is_meant() -> None:
    shipped = {"node-gpu-score-weight": "0.3 0.7", "pod-re-schedule-permit": "true"}
    assert settings(short=shipped) == KETI_SHORT


def test_every_key_has_its_effect_in_both_configmaps() -> None:
    changed = {
        "node-gpu-score-weight": "0.1:0.9",
        "nvlink-weight-percentage": "25",
        "gpu-allocate-prefer": "binpack",
        "node-reservation-permit": "true",
        "pod-re-schedule-permit": "false",
        "avoid-nvlink-one-gpu": "true",
        "multi-node-allocation-permit": "true",
        "non-gpu-node-prefer": "false",
        "multi-gpu-node-prefer": "false",
        "least-score-node-prefer": "true",
        "avoid-high-score-node": "true",
    }
    assert set(changed) == set(configmaps.KEYS)
    long = settings(long=changed)
    before, after = msgspec.structs.astuple(KETI_LONG), msgspec.structs.astuple(long)
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert settings(short=changed) == long


@pytest.mark.parametrize("written", ["0.4:0.6", "0.4 0.6", "0.4   0.6", " 0.4 : 0.6\n", ".4:.6", "0.40:0.6000"])
def test_weights_are_two_numbers_with_spaces_or_a_colon_between(written: str) -> None:
    read = settings(long={"node-gpu-score-weight": written})
    assert (read.node_weight, read.gpu_weight) == (0.4, 0.6)


@pytest.mark.parametrize("written", ["0:1", "1:0", "1000 1000"])
def test_one_weight_may_be_nothing_and_both_may_be_a_thousand(written: str) -> None:
    settings(long={"node-gpu-score-weight": written})


@pytest.mark.parametrize(
    "written",
    ["", "0.4", "0.4:", "0.4:0.6:1", "0.4,0.6", "0:0", "-1:1", "nan:1", "inf:1", "1001:1", "1e3:1", "0.4::0.6", "a b",
     "٣ ٤", "9" * 100_000 + ":1"],
)  # fmt: skip
def test_other_weights_are_refused_with_a_sentence(written: str) -> None:
    (sentence,) = sentences({"node-gpu-score-weight": written})
    assert sentence.startswith('node-gpu-score-weight is "')
    assert sentence.endswith(", and may be two numbers from 0 to 1000 that are not both 0, such as 0.4:0.6 or 0.4 0.6")
    assert len(sentence) < 200


@pytest.mark.parametrize("written", ["", "-1", "1001", "10%", "1.5", "ten", "٣"])
def test_a_percentage_is_a_whole_number_up_to_a_thousand(written: str) -> None:
    (sentence,) = sentences({"nvlink-weight-percentage": written})
    assert sentence == f'nvlink-weight-percentage is "{written}", and may be a whole number from 0 to 1000'
    assert settings(long={"nvlink-weight-percentage": "0"}).nvlink_percent == 0
    assert settings(long={"nvlink-weight-percentage": "1000"}).nvlink_percent == 1000


@pytest.mark.parametrize("word", ["1", "t", "T", "TRUE", "true", "True"])
def test_true_is_written_as_in_go(word: str) -> None:
    assert settings(long={"node-reservation-permit": word}).reservation


@pytest.mark.parametrize("word", ["0", "f", "F", "FALSE", "false", "False"])
def test_false_is_written_as_in_go(word: str) -> None:
    assert not settings(long={"pod-re-schedule-permit": word}).reschedules


@pytest.mark.parametrize("word", ["", "yes", "no", "on", "tRUE", "2"])
def test_other_words_are_neither(word: str) -> None:
    assert sentences({"pod-re-schedule-permit": word}) == [
        f'pod-re-schedule-permit is "{word}", and may be true or false'
    ]


def test_spread_and_binpack_are_the_only_preferences() -> None:
    assert sentences({"gpu-allocate-prefer": "bin pack"}) == [
        'gpu-allocate-prefer is "bin pack", and may be spread or binpack'
    ]


def test_an_unknown_key_is_refused_and_a_near_one_is_named() -> None:
    assert sentences({"gpu-alocate-prefer": "spread", "colour": "red"}, SHORT) == [
        '"gpu-alocate-prefer" is no key of the policy; gpu-allocate-prefer is one',
        '"colour" is no key of the policy',
    ]


def test_one_bad_key_refuses_all_of_it_and_each_one_is_told() -> None:
    told = configmaps.read(
        {SHORT: {"pod-re-schedule-permit": "maybe"}, LONG: {"gpu-allocate-prefer": "binpack", "x": ""}}
    )
    assert isinstance(told, list)
    assert [problem.config_map for problem in told] == [SHORT, LONG]


def test_of_ten_thousand_bad_keys_a_few_are_told_and_the_number_of_the_rest() -> None:
    told = sentences({f"gpu-allocate-prefer-{i}": "spread" for i in range(10_000)})
    assert len(told) == configmaps.MOST_PROBLEMS
    assert told[-1] == "9993 more keys are wrong"


@pytest.mark.parametrize("data", [[], "text", 7, True])
def test_data_that_is_no_map_is_one_sentence(data: object) -> None:
    assert sentences(data) == [f"{LONG} has no keys and values"]


@pytest.mark.parametrize("value", [None, 7, ["spread"], {"a": "b"}, b"spread"])
def test_a_value_that_is_no_text_is_one_sentence(value: object) -> None:
    assert len(sentences({"gpu-allocate-prefer": value})) == 1
    assert len(sentences({7: "spread"})) == 1


def test_settings_in_words_are_a_configmap_that_says_the_same() -> None:
    for one in (KETI_SHORT, KETI_LONG, msgspec.structs.replace(KETI_LONG, prefer="binpack", node_weight=0.25)):
        words = configmaps.settings_in_words(one)
        assert list(words) == list(configmaps.KEYS)
        assert settings(long=words) == one


def test_weights_that_nobody_chose_are_not_told() -> None:
    assert "node-gpu-score-weight" not in configmaps.settings_in_words(NEUTRAL)
    assert configmaps.in_one_line(NEUTRAL).startswith("nvlink-weight-percentage=0, gpu-allocate-prefer=spread, ")
