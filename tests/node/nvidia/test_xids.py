"""Which Xids count: NVIDIA's two variables, as its documentation has them."""

import pytest

from gpushare.node.nvidia.rules import xids
from gpushare.obs.errors import UserError

OF_THE_APPLICATION, OF_THE_GPU, OTHER = 13, 79, 94


@pytest.mark.parametrize(
    ("disable", "enable", "counted"),
    [
        ("", "", {OF_THE_GPU, OTHER}),
        ("all", "", set()),
        ("xids", "", set()),
        ("94", "", {OF_THE_GPU}),
        (" 94 ,79,", "", set()),
        ("94", "94", {OF_THE_GPU, OTHER}),
        ("", "13", {OF_THE_APPLICATION, OF_THE_GPU, OTHER}),
        ("all", "79", {OF_THE_GPU}),
        ("ALL", "79,13", {OF_THE_GPU, OF_THE_APPLICATION}),
        ("94", "all", {OF_THE_APPLICATION, OF_THE_GPU, OTHER}),
    ],
)
def test_what_is_enabled_counts_whatever_is_disabled(disable: str, enable: str, counted: set[int]) -> None:
    counts = xids.counting(disable, enable)
    assert {xid for xid in (OF_THE_APPLICATION, OF_THE_GPU, OTHER) if counts(xid)} == counted


@pytest.mark.parametrize("word", ["seventy", "-1", "7 9", "1" * 40])
def test_a_word_that_is_no_xid_is_named(word: str) -> None:
    with pytest.raises(UserError, match=f'DP_DISABLE_HEALTHCHECKS has "{word[:20]}"'):
        xids.counting(f"94,{word}", "")
