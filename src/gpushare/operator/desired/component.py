"""What the files of this folder take and give: the cluster as far as it matters, and a component as objects."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gpushare.operator.desired.policy import Spec

Object = dict[str, Any]
Manifests = Callable[[str], list[Object]]  # the documents of a file of deploy/, by its name; each call makes new ones


class Cluster(NamedTuple):
    """`image`: gpushare's own, which the operator runs, too. `kinds`: what this API server serves, such as
    `mutatingadmissionpolicies.admissionregistration.k8s.io/v1` or `podmonitors.monitoring.coreos.com/v1`."""

    namespace: str  # where everything goes
    version: tuple[int, int]
    git_version: str  # such as v1.36.4: a second kube-scheduler has the same
    image: str
    pull_secrets: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()


class Component(NamedTuple):
    """`objects` without owner and label, which whoever applies them adds. `unserved`: it is switched on, and why it
    cannot be served here; empty: it can."""

    name: str  # as the status has it
    objects: tuple[Object, ...] = ()
    enabled: bool = True
    unserved: str = ""


Build = Callable[[Spec, Cluster, Manifests], Component | Sequence[Component]]
