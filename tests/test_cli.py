"""The command line: help that fits a terminal, and errors in three lines that a person can act on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpushare
from gpushare import cli
from gpushare.cli import words as cli_words
from gpushare.ctl.inspect import command
from gpushare.view.direct import Direct
from gpushare.view.kubectl import Kubectl

CERTS = Path(__file__).parent / "kube" / "certs"


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster, and none of the variables that choose one."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "PORT", "LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    import logging

    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def error(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> list[str]:
    """What, why and way of a line that is not accepted."""
    assert cli.main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line[:7] for line in lines] == ["error: ", "  why: ", "  try: "], err
    return [line[7:] for line in lines]


# Help


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h"],
        ["--help", "extender"],
        *([name, "--help"] for name in ("inspect", "why", "demo", "extender", "node", "device-plugin")),
        *([name, "--help"] for name in ("collector", "mps", "webhook")),
        ["node", "--sell=gpus", "--help"],
        ["extender", "--help-policies"],
        ["node", "--help-metrics"],
        ["device-plugin", "--help-metrics"],
        ["collector", "--help-metrics"],
    ],
)
def test_help_fits_a_terminal(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) < 24  # and the prompt
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("usage: gpushare ")
    assert lines[-1].startswith("Exit codes: ")
    assert err == ""


def test_every_option_of_the_extender_is_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["extender", "--help"])
    shown = capsys.readouterr().out
    _, known, _ = error(capsys, "extender", "--zzz")
    options = known.removeprefix("gpushare extender knows ").split(", ")
    assert len(options) == 18
    assert [option for option in options if option not in shown] == []


def test_alone_it_prints_its_help_and_asks_for_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert capsys.readouterr().out.startswith("usage: gpushare COMMAND")


@pytest.mark.parametrize("words", [["--version"], ["extender", "--version"]])
def test_it_tells_its_version(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert cli.main(words) == 0
    assert capsys.readouterr().out == f"{gpushare.__version__}\n"


def test_the_installed_command_is_this_one() -> None:
    command = Path(sys.executable).with_name("gpushare")
    run = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"{gpushare.__version__}\n"


def test_help_imports_no_component() -> None:
    program = "import sys; from gpushare import cli; cli.main(['--help']); print('aiohttp' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("why -n default -f pod.yaml", 0), ("why -n default -f -", 2)])
def test_a_stream_that_was_closed_is_no_stack_trace(tmp_path: Path, words: str, code: int, closed: str) -> None:
    (tmp_path / "pod.yaml").write_text("{kind: Pod, metadata: {name: x}, spec: {containers: [{name: main}]}}")
    command = f"'{Path(sys.executable).with_name('gpushare')}' {words} </dev/null {closed}"
    run = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    code = 2 if " >&-" in f" {closed}" else code  # there is no stdout for the answer
    assert (run.returncode, "Traceback" in run.stderr) == (code, False)
    assert "error" not in run.stdout


# Words nobody knows


def test_an_unknown_command_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extendr") == [
        'unknown command "extendr"',
        f"commands: {', '.join(cli.COMMANDS)}",
        "gpushare extender",
    ]
    assert error(capsys, "frobnicate")[2] == "gpushare --help"


def test_an_unknown_option_is_told_with_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extender", "--prot", "1") == [
        "unknown option --prot",
        "gpushare extender knows --port",
        "gpushare extender --port; all options: gpushare extender --help",
    ]
    what, why, _ = error(capsys, "extender", "--memory-units=MiB")
    assert (what, why) == ("unknown option --memory-units", "gpushare extender knows --memory-unit")


def test_an_option_is_never_guessed_from_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extender", "--kubeconf", "x")[0] == "unknown option --kubeconf"


def test_an_unknown_option_like_no_other_is_told_with_all_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    what, why, way = error(capsys, "extender", "-x")
    assert what == "unknown option -x"
    assert why.startswith("gpushare extender knows --port, --listen, ")
    assert way == "gpushare extender --help"


def test_an_unknown_option_without_a_command_is_told_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "--verison") == [
        "unknown option --verison",
        "gpushare knows --version",
        "gpushare --version; all options: gpushare --help",
    ]


def test_a_word_too_many_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extender", "now")[:2] == ['unexpected word "now"', "gpushare extender takes options only"]


@pytest.mark.parametrize("option", ["--port", "--policy", "--kubeconfig", "--tls-cert"])
def test_an_option_without_its_value_is_told(capsys: pytest.CaptureFixture[str], option: str) -> None:
    what, _, way = error(capsys, "extender", option)
    assert (what, way) == (f"{option} needs a value", "gpushare extender --help")


# Values


@pytest.mark.parametrize("given", ["", "GPU", "-gpu", "gpu-", "a.b", "a b", "../x", "x" * 64])
def test_a_policy_namespace_that_is_no_name_is_refused(capsys: pytest.CaptureFixture[str], given: str) -> None:
    assert error(capsys, "extender", f"--policy-namespace={given}") == [
        f'"{given[:63]}" is not the name of a namespace',
        "it has small letters, digits and dashes, 63 at most",
        "--policy-namespace gpu",
    ]


@pytest.mark.parametrize("given", ["gpu", "a", "kube-system", "0a", "x" * 63])
def test_a_policy_namespace_is_a_name(given: str) -> None:
    assert cli_words.namespace(given) == given
    assert cli_words.namespace(None) == ""


@pytest.mark.parametrize("given", ["", "x", "m", "-1", "1.5m", "10 m", "10d", "1234567", "٣"])
def test_a_patience_that_is_no_time_is_refused(capsys: pytest.CaptureFixture[str], given: str) -> None:
    assert error(capsys, "extender", f"--patience={given}") == [
        f'"{given}" is not a time to wait',
        "it is a number of seconds, or one with s, m or h",
        "--patience 10m, or 0 for never",
    ]


@pytest.mark.parametrize(("given", "seconds"), [("0", 0), ("600", 600), ("90s", 90), ("10m", 600), ("2h", 7200)])
def test_a_patience_is_seconds_or_says_its_unit(given: str, seconds: int) -> None:
    assert cli_words.seconds(given) == seconds


def test_an_unknown_policy_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extender", "--policy", "binpak") == [
        'unknown policy "binpak"',
        "policies: binpack, spread, random, keti, metric, best-fit, dotprod, gpu-packing, gpu-clustering, fgd, vrc",
        "--policy binpack",
    ]
    assert error(capsys, "extender", "--policy", "sprad")[2] == "--policy spread"
    assert error(capsys, "extender", "--policy", "")[2] == "--policy binpack"


def test_an_unknown_unit_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extender", "--memory-unit", "gib") == [
        'unknown memory unit "gib"',
        "memory units: MiB, GiB",
        "--memory-unit GiB",
    ]


@pytest.mark.parametrize("word", ["0", "65536", "-1", "http", "1.5", "", "٣", "9" * 5000])
def test_a_port_is_a_number_that_can_be_one(capsys: pytest.CaptureFixture[str], word: str) -> None:
    what, _, way = error(capsys, "extender", f"--port={word}")
    assert (what.endswith("is not a port"), way) == (True, "--port 12345")


def test_a_port_from_the_environment_is_told_as_such(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", "http")
    assert error(capsys, "extender", "--port", "12345")[0::2] == ['"http" is not a port', "PORT=12345"]


def test_an_unknown_log_level_is_told_with_those_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error(capsys, "extender", "--log-level", "loud")[0] == 'unknown log level "loud"'
    monkeypatch.setenv("LOG_LEVEL", "silent")
    assert error(capsys, "extender", "--log-level", "info")[0] == 'unknown log level "silent"'


def test_tls_files_come_three_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extender", "--tls-cert", "x")[0] == "TLS needs three files"


def test_tls_files_that_cannot_be_used_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    for cert, key, ca in (
        ("nowhere.crt", "server.key", "ca.crt"),
        ("server.crt", "client.key", "ca.crt"),
        ("server.crt", "server.key", "ca.key"),
        ("server.key", "server.key", "ca.crt"),
    ):
        files = ["--tls-cert", str(CERTS / cert), "--tls-key", str(CERTS / key), "--client-ca", str(CERTS / ca)]
        assert error(capsys, "extender", *files)[0] == "the TLS files cannot be used"


# The cluster


def test_without_a_kubeconfig_the_cluster_cannot_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extender", code=3)[:2] == [
        "no kubeconfig found",
        "--kubeconfig not given, KUBECONFIG not set, ~/.kube/config missing, not inside a pod",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["extender", "--kubeconfig", "missing"],
        ["--kubeconfig", "missing", "extender"],
        ["--kubeconfig=missing", "extender"],
        ["--context", "extender", "--kubeconfig", "missing", "extender"],
        ["--debug", "extender", "--kubeconfig", "missing"],
    ],
)
def test_options_of_every_command_stand_anywhere_on_the_line(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(words) == 3
    assert "  why: --kubeconfig missing: no such file\n" in capsys.readouterr().err


def test_a_stack_trace_is_for_those_who_ask_and_changes_no_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["extender", "--kubeconfig", "missing"]) == 3
    assert "Traceback" not in capsys.readouterr().err
    assert cli.main(["extender", "--kubeconfig", "missing", "--debug"]) == 3
    trace, _, last = capsys.readouterr().err.partition("error: ")
    assert trace.startswith("Traceback")
    assert last.startswith("no kubeconfig found\n  why: ")


def test_a_kubeconfig_that_is_none_is_no_stack_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for content in (b"", b"[]", b"\xff\xfe", b"clusters: 5", b"{", b"a: &a [*a]"):
        (tmp_path / "config").write_bytes(content)
        error(capsys, "extender", "--kubeconfig", str(tmp_path / "config"), code=3)


# Looking


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["why"], ("no pod is named", "gpushare why POD, or -f FILE")),
        (["why", "llm", "-f", "pod.yaml"], ("a pod or a file, not both", "gpushare why POD, or -f FILE")),
        (["why", "llm", "more"], ('unexpected word "more"', "gpushare why --help")),
        (["inspect", "-o", "xml"], ('unknown output format "xml"', "-o wide")),
        (["inspect", "--color", "blue"], ('unknown color mode "blue"', "--color auto")),
        (
            ["inspect", "--detials"],
            ("unknown option --detials", "gpushare inspect -d; all options: gpushare inspect --help"),
        ),
        (["why", "llm", "-o"], ("-o/--output needs a value", "gpushare why --help")),
        (["demo", "twice"], ('unexpected word "twice"', "gpushare demo --help")),
    ],
)
def test_a_line_that_is_not_understood_changes_nothing(
    capsys: pytest.CaptureFixture[str], words: list[str], told: tuple[str, str]
) -> None:
    what, _, way = error(capsys, *words)
    assert (what, way) == told


def test_without_a_cluster_looking_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["inspect"], ["why", "llm"], ["why", "llm", "-n", "prod"]):
        what, _, way = error(capsys, *words, code=3)
        assert what == "no kubeconfig found"
        assert "gpushare demo" in way


def test_options_may_stand_between_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _inspections(monkeypatch)
    assert cli.main(["--color", "never", "inspect", "gpu-a", "-d", "gpu-b", "-o=wide", "--context", "prod"]) == 0
    assert seen[0][0] == command.Options(nodes=("gpu-a", "gpu-b"), details=True, output="wide")


def _inspections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, object]]:
    """Options and source of each time `inspect` is asked for; nothing is asked of a cluster."""
    seen: list[tuple[object, object]] = []

    def run(options: object, source: object, _: object) -> int:
        seen.append((options, source))
        return 0

    monkeypatch.setattr(command, "run", run)
    return seen


# As kubectl's plugins


def test_a_plugin_speaks_of_itself_by_the_name_it_was_called_by(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.inspect_plugin(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: kubectl inspect gpushare [NODE...]")
    assert cli.gpushare_plugin(["why", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: kubectl gpushare why POD")
    assert cli.gpushare_plugin([]) == 2
    assert capsys.readouterr().out.startswith("usage: kubectl gpushare COMMAND")


def test_a_plugin_looks_and_runs_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.gpushare_plugin(["extender"]) == 2
    assert capsys.readouterr().err.splitlines()[1] == "  why: commands: inspect, why, top"


def test_a_plugin_asks_through_kubectl(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _inspections(monkeypatch)
    assert (cli.inspect_plugin([]), cli.gpushare_plugin(["inspect"]), cli.main(["inspect"])) == (0, 0, 0)
    assert [type(source) for _, source in seen] == [Kubectl, Kubectl, Direct]


# On a node


def test_the_flags_of_aliyuns_plugin_are_taken_and_said_to_have_no_effect(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-logtostderr", "--v=5", "-v", "3", "-memory-unit=TiB", "--health-check", "--timeout", "10", "--mps=false"]
    assert cli.main(["device-plugin", "--node-name", "gpu-a", *words]) == 2
    note, *told = capsys.readouterr().err.splitlines()
    assert note == (
        "note: these flags of Aliyun's plugin have no effect here: "
        "--logtostderr, --v, --v, --health-check, --timeout, --mps"
    )
    assert told[0] == 'error: unknown memory unit "TiB"'


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["node"], "which node is this?"),
        (["device-plugin"], "which node is this?"),
        (["node", "--node-name", "a", "--pin", "magic"], 'unknown pin "magic"'),
        (["device-plugin", "--node-name", "a", "--visible-devices", "minor"], 'unknown GPU notation "minor"'),
        (["node", "--node-name", "a", "--reserve", "1Gi"], '"1Gi" is not an amount to reserve'),
        (["node", "--node-name", "a", "--mps-slots", "49"], '"49" is not a number of MPS slots'),
        (["node", "--node-name", "a", "--mps-slots", "-1"], '"-1" is not a number of MPS slots'),
        (["node", "--node-name", "a", "--mps-slots", "ten"], '"ten" is not a number of MPS slots'),
        (["node", "--node-name", "a", "--nvidia-gpu", "half"], 'unknown --nvidia-gpu value "half"'),
        (["node", "--node-name", "a", "--port", "0"], '"0" is not a port'),
        (["node", "--node-name", "a", "--listen="], '"" is not an address'),
        (["node", "--node-name", "a", "--reserve", "9" * 5000], f'"{"9" * 20}" is not an amount to reserve'),
        (["node", "--node-name", "a", "-logtostderr"], "unknown option -logtostderr"),
        (["node", "--node-name", "a", "--overuse-tolerance", ""], '"" is not a tolerance'),
        (["node", "--node-name", "a", "--overuse-tolerance", "5"], '"5" is not a tolerance'),
        (["node", "--node-name", "a", "--overuse-tolerance", "5%,"], '"5%," is not a tolerance'),
        (["node", "--node-name", "a", "--overuse-tolerance", ",1GiB"], '",1GiB" is not a tolerance'),
        (["node", "--node-name", "a", "--overuse-tolerance", "5%256MiB"], '"5%256MiB" is not a tolerance'),
        (["node", "--node-name", "a", "--overuse-tolerance=-5%"], '"-5%" is not a tolerance'),
        (["node", "--node-name", "a", "--sample-seconds", "0.09"], '"0.09" is not an interval'),
        (["node", "--node-name", "a", "--overuse-grace", "1m"], '"1m" is not an interval'),
        (["node", "--node-name", "a", "--overuse-grace", "0"], '"0" is not an interval'),
        (["node", "--node-name", "a", "--on-overuse", "evit"], 'unknown action "evit"'),
        (["node", "--node-name", "a", "--proc", "/nowhere"], '"/nowhere" shows no processes'),
    ],
)
def test_a_node_that_is_not_understood_does_not_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert error(capsys, *words)[0] == told
