"""What kube-scheduler shall read: ours alone, or ours merged into what it reads already. Pure.

Other profiles and other extenders stay as they are. An entry of gpushare, ours or Aliyun's, is replaced: both answer
under the same path, and two would count the same memory. What kube-scheduler itself would refuse is refused here,
before it is stopped.
"""

import copy
from collections.abc import Sequence
from typing import Final

from gpushare.core.facts import names
from gpushare.install import entries, flags, refusals
from gpushare.install.entries import Object
from gpushare.install.refusals import BY_HAND, refused

LAST_WITH_POLICY: Final = (1, 22)
LAST_WITH_BETA3: Final = (1, 24)
KNOWN: Final = ("v1beta1", "v1beta2", "v1beta3", "v1")
FEWER_NODES: Final = (
    "note: percentageOfNodesToScore stays {percent}: in a cluster of more than a hundred nodes a pod may wait although "
    "a node that was not offered has room on one GPU"
)


def is_policy(version: tuple[int, int], *, configured: bool) -> bool:
    """Whether the scheduler gets a Policy. `configured`: it has a KubeSchedulerConfiguration already."""
    return version <= LAST_WITH_POLICY and not configured


def new(version: tuple[int, int], words: Sequence[str], url: str) -> Object:
    """For a scheduler that has only flags."""
    entry = entries.extender(url)
    if is_policy(version, configured=False):
        return entries.policy(entry)
    lost = [flag for flag in flags.LOST if flags.value(words, flag) is not None]
    if lost:
        why = f"kube-scheduler ignores --{lost[0]} as soon as it has a configuration file"
        raise refused("a flag would no longer count", why, "write a configuration file that says the same, then again")
    made = entries.configuration("v1beta3" if version <= LAST_WITH_BETA3 else "v1", entry)
    del made["clientConnection"]
    try:
        said = flags.moved(words)
    except ValueError as error:
        raise refused(f"{error} is not understood", "it would have to go into the configuration file") from None
    return {key: made[key] for key in ("apiVersion", "kind")} | said | made


def merged(existing: Object, url: str, name: str) -> tuple[Object, list[str]]:
    """What is there already, with our entry; and notes for people. `name`: of the file that it comes from."""
    policy = _is_policy(existing, name)
    refusals.check(existing, refusals.Configuration, name)
    entry = entries.extender(url)
    entry = entries.for_policy(entry) if policy else entry
    found = existing.get("extenders") or []
    others = [one for one in found if not is_ours(one, url)]
    for other in others:
        _check_beside(other, entry, name)
    result, notes = copy.deepcopy(existing), list[str]()
    at = next((number for number, one in enumerate(found) if is_ours(one, url)), len(found))
    before = sum(not is_ours(one, url) for one in found[:at])
    result["extenders"] = [*others[:before], entry, *others[before:]]
    if not policy:
        percent = result.get("percentageOfNodesToScore")
        if percent is None:
            result["percentageOfNodesToScore"] = 100
        elif percent != 100:
            notes.append(FEWER_NODES.format(percent=percent))
    return result, notes


def is_ours(entry: Object, url: str = "") -> bool:
    """Whether it is an entry of gpushare: ours, or Aliyun's."""
    prefix = str(entry.get("urlPrefix") or "").rstrip("/")
    path = prefix.partition("://")[2].partition("/")[2]
    return prefix == url.rstrip("/") or f"/{path}" == names.EXTENDER_PATH


def scheduler_name(content: Object) -> str:
    """The name that pods say who shall be placed by this scheduler."""
    profiles = content.get("profiles") or [{}]
    named = [str(one.get("schedulerName") or "default-scheduler") for one in profiles]
    return "default-scheduler" if "default-scheduler" in named else named[0]


def lease(content: Object, words: Sequence[str]) -> tuple[str, str]:
    """Namespace and name of what several schedulers lead by. Flags count more than the file."""
    said = content.get("leaderElection") or {}
    namespace = flags.value(words, "leader-elect-resource-namespace") or said.get("resourceNamespace") or "kube-system"
    return str(namespace), str(
        flags.value(words, "leader-elect-resource-name") or said.get("resourceName") or "kube-scheduler"
    )


def _is_policy(existing: Object, name: str) -> bool:
    kind, written = existing.get("kind"), str(existing.get("apiVersion"))
    group, _, version = written.rpartition("/")
    if kind == "Policy" and written == "v1":
        return True
    if kind != entries.KIND or group != entries.GROUP or version not in KNOWN:
        why = f"it is a {kind} of {written}; known are Policy of v1, and {entries.KIND} of {', '.join(KNOWN)}"
        raise refused(f"{name} is not understood", why)
    return False


def _check_beside(other: Object, entry: Object, name: str) -> None:
    """kube-scheduler does not start with two extenders that bind, or that manage the same resource."""
    where = other.get("urlPrefix")
    if other.get("bindVerb"):
        why = f"{where} in {name} has a bindVerb too, and kube-scheduler allows one extender that binds"
        raise refused("two extenders would bind", why, "remove that bindVerb, or use deploy/gpu-scheduler.yaml instead")
    ours = {one["name"] for one in entry["managedResources"]}
    managed = [one.get("name") for one in other.get("managedResources") or () if one.get("name") in ours]
    if managed:
        why = f"{where} in {name} manages {managed[0]} too, and kube-scheduler allows one extender for each resource"
        raise refused(f"two extenders would manage {managed[0]}", why, f"remove it there, or {BY_HAND}")
