"""From the words of a deed to the objects that an API server keeps.

Those of a scenario, and what else a scheduler reads: labels, taints, selectors and affinity.
"""

from tests.adversary import intree
from tests.adversary.server import Object
from tests.support import objects

ADDED_WORDS = ("selector", "tolerations", "affinity", "hidden")


def pod(given: Object) -> Object:
    """A pod in the words of a scenario; also selector, tolerations, affinity (required expressions) and hidden (nodes
    that a rule of the scheduler's own forbids)."""
    made = objects.pod({key: value for key, value in given.items() if key not in ADDED_WORDS})
    spec = made["spec"]
    for word, key in (("selector", "nodeSelector"), ("tolerations", "tolerations")):
        if word in given:
            spec[key] = given[word]
    if "affinity" in given:
        terms = {"nodeSelectorTerms": [{"matchExpressions": given["affinity"]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if "hidden" in given:
        made["metadata"]["labels"][intree.HIDDEN] = "_".join(given["hidden"])
    return made


def node(name: str, given: Object) -> Object:
    """A node object from the words of `node`. A GPU's size is in MiB; a node that counts GiB rounds it down."""
    pin, unit, unhealthy, lost = (
        given.get("pin", "plugin"),
        given.get("unit", "MiB"),
        given.get("unhealthy", []),
        given.get("lost", []),
    )
    sizes = [size if unit == "MiB" else size // 1024 for size in given["gpus"]]
    words: Object = {"pin": pin, "unit": unit}
    if pin == "aliyun":
        words |= {"capacity": sum(sizes), "count": len(sizes)}
    else:
        cards = [{"total": size, "i": i, "ok": i not in unhealthy} for i, size in enumerate(sizes) if i not in lost]
        words["gpus"] = cards
    if pin == "direct":
        words |= {key: given[key] for key in ("slots", "whole") if key in given}
    words |= {key: given[key] for key in ("state", "capacity", "nvidia") if key in given}
    made = objects.node(name, words)
    made["metadata"]["labels"] = {"kubernetes.io/hostname": name, **given.get("labels", {})}
    made["spec"] = {"taints": given.get("taints", []), "unschedulable": given.get("cordon", False)}
    return made
