"""The rules for Deployments and Jobs: defaults, refusals, what may never change, and /scale. Pure.

What the controllers here cannot do (pausing, indexed jobs, …) is refused, not stored and ignored.
"""

import re
from typing import Any, Final

from gpushare.devcluster.apiserver import selectors, status
from gpushare.devcluster.apiserver.kinds import decoding, pods, rules
from gpushare.devcluster.apiserver.kinds.rules import Cause
from gpushare.devcluster.apiserver.status import Object

NO_MATCH: Final = "`selector` does not match template `labels`"
NO_SHARE: Final = "a valid percent string must be a numeric string followed by an ending '%'"
IMMUTABLE: Final = "field is immutable"
JOB_POLICIES: Final = ("OnFailure", "Never")
JOB_NAME_LABELS: Final = ("job-name", "batch.kubernetes.io/job-name")
JOB_UID_LABELS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
ROLLING: Final = "RollingUpdate"
RECREATE: Final = "Recreate"
SHARE: Final = "25%"

# Fields that only a real cluster supports; other values than these are refused.
_DEPLOYMENT_LIMITS: Final[dict[str, tuple[Any, ...]]] = {"paused": (None, False), "minReadySeconds": (None, 0)}
_JOB_LIMITS: Final[dict[str, tuple[Any, ...]]] = {
    "activeDeadlineSeconds": (None,),
    "backoffLimitPerIndex": (None,),
    "completionMode": ("NonIndexed",),
    "managedBy": (None,),
    "manualSelector": (False,),
    "podFailurePolicy": (None,),
    "podReplacementPolicy": ("TerminatingOrFailed",),
    "successPolicy": (None,),
    "suspend": (False,),
    "ttlSecondsAfterFinished": (None,),
}


def read_deployment(deployment: Object) -> None:
    """Defaults, as a real server adds them when it reads one."""
    spec = _read(deployment, {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
    strategy = _default(spec, "strategy", {})
    if _default(strategy, "type", ROLLING) == ROLLING:
        rolling = _default(strategy, "rollingUpdate", {})
        for field in ("maxUnavailable", "maxSurge"):
            _default(rolling, field, SHARE)


def read_job(job: Object) -> None:
    spec = _read(job, {"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False, "manualSelector": False})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _default(spec, "parallelism", 1)
    _default(spec, "podReplacementPolicy", "TerminatingOrFailed")
    labels = spec["template"]["metadata"].get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)


def create_deployment(deployment: Object) -> list[Cause]:
    deployment["metadata"]["generation"] = 1
    deployment["status"] = {}
    return _deployment(deployment)


def create_job(job: Object) -> list[Cause]:
    """A job selects its pods by its own uid, so that it never selects another pod."""
    meta, spec = job["metadata"], job["spec"]
    meta["generation"] = 1
    job["status"] = {}
    own = dict.fromkeys(JOB_NAME_LABELS, meta.get("name", "")) | dict.fromkeys(JOB_UID_LABELS, meta["uid"])
    spec["template"]["metadata"]["labels"] = (spec["template"]["metadata"].get("labels") or {}) | own
    spec["selector"] = {"matchLabels": {JOB_UID_LABELS[1]: meta["uid"]}}
    return _job(job)


def update_deployment(new: Object, old: Object) -> list[Cause]:
    """Through the main endpoint: a changed spec or annotation is a new generation; the selector cannot change."""
    _keep_status(new, old)
    if new["metadata"].get("annotations") != old["metadata"].get("annotations"):
        _count_generation(new, old)
    causes = _deployment(new)
    if new["spec"].get("selector") != old["spec"].get("selector"):
        causes.append(rules.invalid("spec.selector", new["spec"].get("selector"), IMMUTABLE))
    return causes


def update_job(new: Object, old: Object) -> list[Cause]:
    _keep_status(new, old)
    causes = _job(new)
    for field in ("completions", "selector", "template"):
        if new["spec"].get(field) != old["spec"].get(field):
            causes.append(rules.invalid(f"spec.{field}", new["spec"].get(field), IMMUTABLE))
    return causes


def update_status(new: Object, old: Object) -> list[Cause]:
    new["spec"] = old["spec"]
    return rules.metadata(new, rules.subdomain_name)


def scale(deployment: Object) -> Object:
    """What /scale shows of a Deployment."""
    meta, spec = deployment["metadata"], deployment["spec"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in shown},
        "spec": {"replicas": spec["replicas"]},
        "status": {
            "replicas": deployment["status"].get("replicas", 0),
            "selector": selectors.written(spec.get("selector") or {}),
        },
    }


def rescale(deployment: Object, wanted: Object) -> None:
    """Applies a changed Scale."""
    decoding.check(wanted, decoding.Workload)
    rules.read_metadata(wanted)
    deployment["spec"]["replicas"] = (wanted.get("spec") or {}).get("replicas") or 0
    if version := wanted["metadata"].get("resourceVersion"):
        deployment["metadata"]["resourceVersion"] = version


def _read(workload: Object, defaults: Object) -> Object:
    """The spec, with its defaults and those of its template."""
    decoding.check(workload, decoding.Workload)
    _default(workload, "status", {})
    spec: Object = _default(workload, "spec", {})
    for field, value in defaults.items():
        _default(spec, field, value)
    template = _default(spec, "template", {})
    rules.read_metadata(template)
    pods.read_spec(_default(template, "spec", {}))
    return spec


def _default(obj: Object, field: str, value: Any) -> Any:
    """The value of a field; the default is set if it has none."""
    if obj.get(field) is None:
        obj[field] = value
    return obj[field]


def _deployment(deployment: Object) -> list[Cause]:
    spec = deployment["spec"]
    _refuse_unsupported("a Deployment", spec, _DEPLOYMENT_LIMITS)
    causes = _workload(deployment, ("replicas",))
    causes += _one_of("spec.strategy", spec["strategy"]["type"], RECREATE, ROLLING)
    for field, value in (spec["strategy"].get("rollingUpdate") or {}).items():
        if not _is_share(value):
            causes.append(rules.invalid(f"spec.strategy.rollingUpdate.{field}", value, NO_SHARE))
    causes += _one_of("spec.template.spec.restartPolicy", spec["template"]["spec"]["restartPolicy"], "Always")
    if not spec.get("selector"):
        causes.append(("spec.selector", rules.REQUIRED, "Required value"))
    elif not _selects(spec):
        labels = spec["template"]["metadata"].get("labels") or {}
        causes.append(rules.invalid("spec.template.metadata.labels", labels, NO_MATCH))
    return causes


def _is_share(value: Any) -> bool:
    """A number of pods, or a percentage of them."""
    return value >= 0 if isinstance(value, int) else bool(re.fullmatch(r"\d+%", value, re.ASCII))


def _selects(spec: Object) -> bool:
    match = selectors.compile(selectors.written(spec["selector"]), "", ())
    return match(spec["template"]["metadata"].get("labels") or {}, {})


def _job(job: Object) -> list[Cause]:
    _refuse_unsupported("a Job", job["spec"], _JOB_LIMITS)
    causes = _workload(job, ("parallelism", "completions", "backoffLimit"))
    if job["spec"]["template"]["spec"]["restartPolicy"] not in JOB_POLICIES:
        sentence = 'Required value: valid values: "OnFailure", "Never"'
        causes.append(("spec.template.spec.restartPolicy", rules.REQUIRED, sentence))
    return causes


def _workload(workload: Object, counts: tuple[str, ...]) -> list[Cause]:
    spec = workload["spec"]
    causes = rules.metadata(workload, rules.subdomain_name)
    for field in counts:
        if (spec.get(field) or 0) < 0:
            causes.append(rules.invalid(f"spec.{field}", spec[field], rules.NEGATIVE))
    return causes + pods.validate_spec(spec["template"]["spec"], "spec.template.spec")


def _one_of(field: str, value: object, *known: str) -> list[Cause]:
    if value in known:
        return []
    listed = ", ".join(f'"{name}"' for name in known)
    return [(field, rules.NOT_SUPPORTED, f'Unsupported value: "{value}": supported values: {listed}')]


def _keep_status(new: Object, old: Object) -> None:
    new["status"] = old["status"]
    if new["spec"] != old["spec"]:
        _count_generation(new, old)


def _count_generation(new: Object, old: Object) -> None:
    new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _refuse_unsupported(whose: str, spec: Object, limits: dict[str, tuple[Any, ...]]) -> None:
    for field, known in limits.items():
        if spec.get(field) not in known:
            raise status.not_supported(f"spec.{field} of {whose}")
