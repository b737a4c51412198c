"""What a container that asks for an MPS share gets beside its GPUs: the way to the MPS daemon of its node, and its
limits.

A client needs the folder of the daemon's pipes and the shared memory of the node. What people wrote by hand stays as it
is: an env entry of that name, a mount at that place, hostIPC. The folder of the pipes has to be there already: where
no daemon ever ran, the container waits with an event of kubelet, and never runs on a GPU without MPS.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from gpushare.core.admission import containers
from gpushare.core.admission.containers import Addition, Object
from gpushare.core.facts import names, units, visible

PIPES: Final = ("gpushare-mps", names.MPS_PIPE_FOLDER)
SHARED_MEMORY: Final = ("gpushare-shm", names.SHM_FOLDER)
FOLDERS: Final = (PIPES, SHARED_MEMORY)  # volumes, and their folders on the node and in the container
MUST_EXIST: Final = "Directory"  # the type of the volumes

Mount = tuple[str, str]


def asks(container: Object) -> bool:
    """For one or more. A container with 0 may run on any node, also where the folders are not."""
    written = containers.limits(container).get(names.MPS_GPU)
    amount = units.exact(written) if isinstance(written, str | int | float) else None
    return amount is not None and amount > 0


def entries(pod: Object, container: Object, key: str) -> list[Object]:
    """For its env. `key`: the annotation with its GPUs; that with its limit has the same end."""
    wanted: list[Object] = [{"name": names.MPS_PIPE, "value": names.MPS_PIPE_FOLDER}]
    wanted.append(containers.reference(names.MPS_LIMIT, visible.limits_of(key)))
    if names.MPS_THREADS in containers.annotations(pod):
        wanted.append(containers.reference(names.MPS_PERCENTAGE, names.MPS_THREADS))
    written = [entry.get("name") for entry in containers.env(container) if isinstance(entry, dict)]
    return [entry for entry in wanted if entry["name"] not in written]


def mounted(pod: Object, container: Object) -> list[Mount]:
    """The folders that it needs and has not. With hostIPC it has the node's shared memory."""
    there = [mount.get("mountPath") for mount in containers.mounts(container)]
    needed = (PIPES,) if containers.spec(pod).get("hostIPC") is True else FOLDERS
    return [(name, folder) for name, folder in needed if folder not in there and f"{folder}/" not in there]


def mounts(steps: Sequence[str | int], folders: Iterable[Mount]) -> Addition:
    return Addition((*steps, "volumeMounts"), [{"name": name, "mountPath": folder} for name, folder in folders])


def volumes(pod: Object, mounted: Collection[Mount]) -> Addition:
    """For the folders that are mounted, those that the pod has not."""
    there = [volume.get("name") for volume in containers.volumes(pod)]
    missing = [(name, folder) for name, folder in FOLDERS if (name, folder) in mounted and name not in there]
    made = [{"name": name, "hostPath": {"path": folder, "type": MUST_EXIST}} for name, folder in missing]
    return Addition(("volumes",), made)
