"""`gpushare operator`: what is missing is told before anything is done."""

import pytest

from gpushare import cli

NEEDED = ["operator", "--namespace", "gpu-operator", "--image", "gpushare:1"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["operator"], "where does everything go?"),
        (["operator", "--namespace", "gpu-operator"], "which image do its parts run?"),
        (["operator", "--namespace", "GPU", "--image", "x"], '"GPU" is not the name of a namespace'),
        (["operator", "--install-crds", "--uninstall"], "two things at once"),
        (["operator", "--keep-crds"], "--keep-crds says nothing alone"),
        ([*NEEDED, "--port", "0"], '"0" is not a port'),
        ([*NEEDED, "--listen", ""], '"" is not an address'),
        ([*NEEDED, "--unistall"], "unknown option --unistall"),
        ([*NEEDED, "now"], 'unexpected word "now"'),
        ([*NEEDED, "--log-level", "loud"], 'unknown log level "loud"'),
    ],
)
def test_bad_words_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    for variable in ("POD_NAMESPACE", "OPERAND_IMAGE", "OPERAND_PULL_SECRETS"):
        monkeypatch.delenv(variable, raising=False)
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {says}")
    assert out == ""
