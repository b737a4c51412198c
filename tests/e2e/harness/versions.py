"""The versions of kube-scheduler that are tested, each with the file of deploy/ for it.

`cluster` starts the newest unless a test asks for another. `make e2e` also tests scheduling with the oldest, which is
the version in Aliyun's guides; `make e2e-versions` with all others. The API server is always the newest.
"""

import signal
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.harness import binaries, shipped
from tests.support.objects import Object

CLIENT_LIMIT = 5000  # requests a second; its own limit would hide ours
MANY_REQUESTS = (f"--kube-api-qps={CLIENT_LIMIT}", f"--kube-api-burst={CLIENT_LIMIT}")


class Scheduler(NamedTuple):
    version: str
    file: str  # in deploy/scheduler
    flags: tuple[str, ...] = ()  # what our API server, so much newer, makes it need
    health: str = "/healthz"
    ended_by: signal.Signals = signal.SIGKILL  # asked politely, an old one waits for its next pod first

    @property
    def number(self) -> tuple[int, int]:
        major, minor, _ = self.version.removeprefix("v").split(".")
        return int(major), int(minor)

    @property
    def program(self) -> Path:
        return binaries.program(binaries.SCHEDULER, self.version)

    def settings(self, kubeconfig: Path, **changes: Any) -> Object:
        """The content of its file; `changes` as `shipped` understands them."""
        if self._has_policy:
            assert changes.pop("name") == "default-scheduler", "a Policy cannot say another name"
            return shipped.scheduler_policy(self.file, **changes)
        return shipped.scheduler_configuration(kubeconfig, file=self.file, **changes)

    def arguments(self, settings: Path, kubeconfig: Path) -> tuple[str, ...]:
        if self._has_policy:
            said = (f"--policy-config-file={settings}", f"--kubeconfig={kubeconfig}", "--leader-elect=false")
            return (*said, *MANY_REQUESTS, *self.flags)
        return (f"--config={settings}", *self.flags)

    @property
    def _has_policy(self) -> bool:
        return self.file.startswith("policy.")

    def __str__(self) -> str:
        return f"{self.version.removeprefix('v')} {self.file.partition('.')[0]}"


# Up to 1.23 it asks for a version of CSIStorageCapacity that our API server no longer has.
NO_CAPACITIES = "--feature-gates=CSIStorageCapacity=false"

NEWEST = Scheduler(binaries.VERSION, "config-v1.yaml", health="/readyz", ended_by=signal.SIGTERM)
OLDEST, OTHERS = "oldest", "others"
OLDER = {
    OLDEST: (Scheduler("v1.22.17", "policy.json", (NO_CAPACITIES,)),),
    OTHERS: (
        Scheduler("v1.22.17", "config-v1beta1.yaml", (NO_CAPACITIES,)),
        Scheduler("v1.23.17", "config-v1beta3.yaml", (NO_CAPACITIES,)),
        Scheduler("v1.25.4", "config-v1.yaml"),
        Scheduler("v1.28.15", "config-v1.yaml"),
        Scheduler("v1.31.4", "config-v1.yaml"),
    ),
}
