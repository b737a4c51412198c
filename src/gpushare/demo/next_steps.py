"""What to type next, in another terminal and in any folder: the last lines of the demo on a terminal."""

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from gpushare.demo import objects

Which = Callable[[str], str | None]


def lines(kubeconfig: Path, dashboard: str, which: Which = shutil.which) -> list[str]:
    """`dashboard`: its address."""
    gpushare = _command("gpushare", which)
    first = [
        "The cluster stays up until Ctrl-C. In a browser on this machine:",
        f"  {dashboard}",
        "In another terminal:",
        f"  export KUBECONFIG={shlex.quote(str(kubeconfig))}",
    ]
    if not which("kubectl"):
        return [
            *first,
            f"  {gpushare} inspect -w",
            f"  {gpushare} top",
            f"  {gpushare} why llm-70b -n ml",
            "(kubectl works too, once it is installed)",
        ]
    has_plugin = _is_on_every_path("kubectl-inspect-gpushare", which)
    inspect = "kubectl inspect gpushare" if has_plugin else f"{gpushare} inspect"
    return [
        *first,
        f"  kubectl get pods -A -o wide; {inspect} -w",
        f"  {gpushare} top; {gpushare} why llm-70b -n ml",
        "  kubectl get gpunodes                         # what GPUs do: made up here",
        "  kubectl scale deployment web --replicas=5    # one more fits, one waits",
        f"  kubectl logs chat -c main -n {objects.BY_PLUGIN}       # env from the device plugin",
    ]


def _command(name: str, which: Which) -> str:
    if _is_on_every_path(name, which):
        return name
    return shlex.quote(str(Path(sys.executable).with_name(name).absolute()))


def _is_on_every_path(name: str, which: Which) -> bool:
    """A virtual environment is on the PATH of the terminal that activated it, not of the next one."""
    program = which(name)
    return program is not None and not (sys.prefix != sys.base_prefix and Path(program).is_relative_to(sys.prefix))
