"""The manifests say kube-system. The operator puts everything into its own namespace; this says what changes then."""

from typing import Any, Final

from gpushare.core.facts import names

Object = dict[str, Any]

WRITTEN: Final = "kube-system"
# What stays there, because what it is about is there: ConfigMaps with unhealthy GPUs, and how the API server
# recognises its clients. The subjects change their namespace like those of all other bindings.
STAYING: Final = (
    ("Role", "gpushare-schd-extender"),
    ("RoleBinding", "gpushare-schd-extender"),
    ("Role", "gpushare-dashboard"),
    ("RoleBinding", "gpushare-dashboard"),
    ("RoleBinding", "gpu-scheduler-as-authentication-reader"),
)
# Inside of texts: our accounts in CEL, and the lease in the configuration of a kube-scheduler.
IN_TEXTS: Final = ("system:serviceaccount:{}:gpushare-", "resourceNamespace: {}\n")


def moved(document: Object, namespace: str) -> Object:
    """The same object in another namespace. The document is changed."""
    home = document["metadata"].get("namespace")
    changed: Object = _moved(document, namespace)
    if (document["kind"], document["metadata"]["name"]) in STAYING and home == names.UNHEALTHY_NAMESPACE:
        changed["metadata"]["namespace"] = home
    return changed


def _moved(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        return {
            key: namespace if key == "namespace" and inner == WRITTEN else _moved(inner, namespace)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_moved(inner, namespace) for inner in value]
    if isinstance(value, str):
        for text in IN_TEXTS:
            value = value.replace(text.format(WRITTEN), text.format(namespace))
    return value
