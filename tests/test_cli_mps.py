"""`gpushare mps` and the options of the node part about MPS: what is wrong is told before anything is done."""

import pytest

from gpushare import cli
from tests.support import manifests


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["mps"], 2, "which node is this?"),
        (["mps", "--node-name", "a", "--port", "0"], 2, '"0" is not a port'),
        (["mps", "--node-name", "a", "--port", "-1"], 2, '"-1" is not a port'),
        (["mps", "--node-name", "a", "--listen", ""], 2, '"" is not an address'),
        (["mps", "--restor"], 2, "unknown option --restor"),
        (["mps", "gpu-a"], 2, 'unexpected word "gpu-a"'),
        (["mps", "--node-name", "a", "--log-level", "loud"], 2, 'unknown log level "loud"'),
        (["node", "--node-name", "a", "--mps-status", "/run/nvidia/mps"], 2, "--mps-status has no effect"),
        (["node", "--node-name", "a", "--mps-slots", "10", "--mps-status="], 2, '"" is not a folder'),
        (["node", "--node-name", "a", "--mps-slots", "10", "--mps-status", "run"], 2, '"run" is not a folder'),
        (["node", "--sell=gpus", "--node-name", "a", "--mps-status="], 2, '"" is not a folder'),
        (["node", "--node-name", "a", "--mps-slots", "49"], 2, '"49" is not a number of MPS slots'),
    ],
)
def test_bad_words_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, says: str
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert cli.main(words) == code
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {says}")
    assert out == ""


def test_the_node_part_knows_where_reports_are(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["node", "--mps-slots=10", "--mps-status=/run/nvidia/mps"]
    assert manifests.node_config(words, monkeypatch).mps_status == "/run/nvidia/mps"
    selling = ["node", "--sell=gpus", "--mps-status=/run/nvidia/mps"]
    assert manifests.selling_config(selling, monkeypatch).mps_status == "/run/nvidia/mps"
