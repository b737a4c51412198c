"""What the demo says to type next works in another terminal and in any folder."""

import sys
from pathlib import Path

import pytest

from gpushare.demo import next_steps

KUBECONFIG = Path("/tmp/gpushare-demo-1/kubeconfig")
ADDRESS = "http://127.0.0.1:43210/login?token=t"
OURS = str(Path(sys.executable).with_name("gpushare"))


def printed(monkeypatch: pytest.MonkeyPatch, prefix: str, **programs: str) -> list[str]:
    """With these programs on the PATH, for an interpreter installed under this prefix."""
    monkeypatch.setattr(sys, "prefix", prefix)
    return next_steps.lines(KUBECONFIG, ADDRESS, lambda name: programs.get(name.replace("-", "_")))


def test_without_kubectl_our_own_commands_are_shown_with_their_full_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, "/venv")[1:] == [
        f"  {ADDRESS}",
        "In another terminal:",
        f"  export KUBECONFIG={KUBECONFIG}",
        f"  {OURS} inspect -w",
        f"  {OURS} top",
        f"  {OURS} why llm-70b -n ml",
        "(kubectl works too, once it is installed)",
    ]


def test_a_program_on_the_path_is_shown_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {"kubectl": "/usr/bin/kubectl", "gpushare": "/usr/local/bin/gpushare"}
    assert "  kubectl get pods -A -o wide; gpushare inspect -w" in printed(monkeypatch, "/venv", **programs)
    assert any(line.startswith("  kubectl get gpunodes ") for line in printed(monkeypatch, "/venv", **programs))
    programs["kubectl_inspect_gpushare"] = "/usr/local/bin/kubectl-inspect-gpushare"
    assert "  kubectl get pods -A -o wide; kubectl inspect gpushare -w" in printed(monkeypatch, "/venv", **programs)


def test_a_program_of_a_virtual_environment_is_shown_with_its_full_path(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {name: f"/venv/bin/{name}" for name in ("gpushare", "kubectl_inspect_gpushare")}
    lines = printed(monkeypatch, "/venv", kubectl="/usr/bin/kubectl", **programs)
    assert f"  kubectl get pods -A -o wide; {OURS} inspect -w" in lines


def test_a_path_with_a_space_can_be_typed() -> None:
    assert "  export KUBECONFIG='/tmp/a b/kubeconfig'" in next_steps.lines(
        Path("/tmp/a b/kubeconfig"), ADDRESS, lambda _: None
    )
