"""`gpushare validate` on the command line: its ways, their exit codes, and a pod by hand."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpushare import cli
from gpushare.core.facts import intree, names
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.kube.auth import login
from gpushare.obs.errors import UserError
from gpushare.validate.machine import inquiry, inside
from gpushare.validate.rules.driver import Answer
from gpushare.validate.workload import by_hand, pod
from tests.support import embedded_objects
from tests.support.nvml import build, state
from tests.support.wait import PATIENCE
from tests.validate.machine import Machine

ROOT = Path(__file__).parents[2]


def run(*words: str) -> int:
    return cli.main(["validate", *words])


def test_the_checks_of_this_machine_are_shown(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.install()
    machine.devices("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
    machine.program()
    assert run("--here", f"--host-root={machine.root}") == 0
    shown = capsys.readouterr().out
    assert re.search(r"^driver   passed  \d+s +driver 550\.54\.14 of this machine, 2 GPUs$", shown, re.MULTILINE), shown
    machine.library.unlink()
    assert run("--here", f"--host-root={machine.root}", "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["good"] is False


def test_a_machine_without_a_root_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--here", "--host-root=/none-such") == 2
    assert "there is no folder /none-such" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--here", "--keep"), "--here and --keep do not go together"),
        (("--keep", "gpu-a"), 'unexpected word "gpu-a"'),
        (("--wait-for=drivers",), 'unknown check "drivers"'),
        (("--wait-for=",), "--wait-for names no check"),
        (("--wait-for", " , "), "--wait-for names no check"),
        (("--kep",), "unknown option --kep"),
        (("--here", "-o", "xml"), 'unknown output format "xml"'),
        (("--keep", "--node-name=a"), "where shall the pod be tried?"),
        (("--keep",), "which node is this?"),
    ],
)
def test_what_is_not_understood_is_bad_input(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("NODE_NAME", "POD_NAMESPACE"):
        monkeypatch.delenv(variable, raising=False)
    assert run(*words) == 2
    assert says in capsys.readouterr().err


def test_both_help_pages_fit_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for words, begin in (
        (("--help",), "[NODE...]"),
        (("--keep", "--help"), "--keep"),
        (("--wait-for=x", "-h"), "--keep"),
    ):
        assert run(*words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 23
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith(f"usage: gpushare validate {begin}")


def waiting(tmp_path: Path) -> "subprocess.Popen[str]":
    code = (
        "import pathlib; from gpushare import cli; from gpushare.core.facts import names;"
        f"names.VALIDATIONS_FOLDER = {str(tmp_path)!r};"
        "import sys; sys.exit(cli.main(['validate', '--wait-for=driver,toolkit', '--node-name=gpu-a']))"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_an_init_container_ends_when_the_files_are_there(tmp_path: Path) -> None:
    process = waiting(tmp_path)
    assert process.stderr is not None
    first = json.loads(process.stderr.readline())
    assert (first["msg"], first["checks"]) == ("waiting for checks of this node", "driver, toolkit")
    for name in ("driver-ready", "toolkit-ready"):
        (tmp_path / name).touch()
    assert process.wait(timeout=PATIENCE) == 0
    process.stderr.close()


def test_an_init_container_that_is_ended_has_not_succeeded(tmp_path: Path) -> None:
    process = waiting(tmp_path)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 143
    process.stderr.close()


def test_waiting_loads_no_client() -> None:
    code = (
        "import sys; from gpushare import cli; from gpushare.validate import waiting, ready_files;"
        "print([m for m in ('aiohttp', 'pynvml', 'yaml', 'grpc', 'prometheus_client') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_container_says_what_it_sees(machine: Machine, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from gpushare.validate.machine import inside; import os;"
        f"text, code = inside.run(os.environ, Path({str(tmp_path / 'message')!r})); print(text, end=''); exit(code)"
    )
    variables = {"LD_LIBRARY_PATH": str(build.cached().parent), names.VISIBLE_DEVICES: state.uuid(0)}
    environment = os.environ | machine.environment | variables
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        f"GPU 0: {state.uuid(0)} Tesla T4", f"GPU 1: {state.uuid(1)} Tesla T4",
        f"NVIDIA_VISIBLE_DEVICES={state.uuid(0)}",
    ]  # fmt: skip
    seen = json.loads((tmp_path / "message").read_text())
    assert seen == {"gpus": [state.uuid(0), state.uuid(1)], "visible": state.uuid(0), "failure": ""}


def test_a_container_without_a_driver_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer(what="libnvidia-ml.so.1 not found", why="no driver", way="runtimeClassName: nvidia")
    monkeypatch.setattr(inquiry, "own_answer", lambda: answer)
    text, code = inside.run({}, tmp_path / "message")
    assert (code, text.splitlines()[0]) == (1, "error: libnvidia-ml.so.1 not found")
    assert json.loads((tmp_path / "message").read_text())["failure"] == "libnvidia-ml.so.1 not found: no driver"


# A pod by hand


async def test_a_pod_by_hand_is_like_the_validators() -> None:
    async with ApiServer(bookmark_seconds=0.05) as server:
        for name, on in (("validator-b", "gpu-b"), ("validator-a", "gpu-a")):
            made = embedded_objects.pod(name)
            made["metadata"]["labels"] = {"component": "gpushare-validator"}
            made["spec"] |= {"nodeName": on, "containers": [{"name": "v", "image": "gpushare:7"}]}
            embedded_objects.create(server, made)
        found = intree.Node()
        found.metadata.name = "gpu-a"
        said = await by_hand.run(login.Access(server.url), [found], by_hand.Given())
        assert said["gpu-a"].state == "skipped"  # it sells nothing
        assert by_hand.NO_VALIDATOR not in said["gpu-a"].why


async def test_without_a_validator_namespace_and_image_have_to_be_named() -> None:
    async with ApiServer(bookmark_seconds=0.05) as server:
        found = intree.Node()
        found.metadata.name = "gpu-a"
        with pytest.raises(UserError, match="no gpushare-validator runs"):
            await by_hand.run(login.Access(server.url), [found], by_hand.Given())
        said = await by_hand.run(login.Access(server.url), [found], by_hand.Given("default", "gpushare:1"))
        assert said["gpu-a"].state == "skipped"


async def test_a_cluster_that_cannot_be_asked_is_said() -> None:
    with pytest.raises(UserError, match="does not answer"):
        await by_hand.run(login.Access("http://127.0.0.1:1"), [], by_hand.Given())


def test_pods_by_hand_are_not_those_of_the_validator() -> None:
    config = by_hand._config("gpu-a", by_hand.Given("ns", "img"), [])
    assert config.label.endswith("-by-hand")
    assert len(config.label) <= 63
    assert pod.OF_NODE == "gpushare.io/validates"
