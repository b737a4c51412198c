"""How an object of ours is told from others': two labels, its owner, and a digest of what was wanted.

The digest makes an object differ as soon as something else is wanted, also if that is only less than before: the apply
then takes back what is not wanted any more.
"""

import copy
from typing import Any, Final

from gpushare.core.facts import names
from gpushare.operator.applying import comparing
from gpushare.operator.seeing.keys import WORKLOADS
from gpushare.operator.seeing.models import Policy

Object = dict[str, Any]

API_VERSION: Final = "gpushare.io/v1alpha1"
KIND: Final = "ClusterPolicy"


def marked(wanted: Object, component: str, policy: Policy) -> Object:
    """The object as it is applied."""
    body = copy.deepcopy(wanted)
    metadata = body["metadata"]
    labels = {names.MANAGED_BY[0]: names.MANAGED_BY[1], names.PART_OF: component}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["ownerReferences"] = [owner(policy)]
    if body["kind"] in WORKLOADS:
        template = body["spec"]["template"].setdefault("metadata", {})
        template["labels"] = {**(template.get("labels") or {}), **labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), names.WANTED: comparing.digest(body)}
    return body


def owner(policy: Policy) -> Object:
    return {"apiVersion": API_VERSION, "kind": KIND, "name": policy.name, "uid": policy.uid, "controller": True}
