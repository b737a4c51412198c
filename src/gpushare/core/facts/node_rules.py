"""What a pod says about the nodes it may use: selector, required node affinity and tolerations, and for pods of
gpu-scheduler the annotation `nodeName`.

`intree.admits` compares it with nodes.
"""

import msgspec

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import Rules

MOST_CONDITIONS, MOST_VALUES, MOST_TEXT = 32, 256, 16_384  # of the rules of one pod
LONGEST_NAME = 253  # of a node
ANYWHERE = Rules(tolerations=(objects.Toleration(operator="Exists"),))


def read(pod: objects.Pod) -> Rules | None:
    """The rules of a pod; None if it has none. Every node is compared with them, so very long rules are not read: such
    a pod counts as one that may go anywhere."""
    spec, terms, named = pod.spec, pod.spec.required_terms, _named(pod)
    if not spec.node_selector and terms is None and not spec.tolerations:
        return Rules(node=named) if named else None
    rules = Rules(tuple(sorted((spec.node_selector or {}).items())), terms, spec.tolerations or (), named)
    return rules if _is_short(rules) else msgspec.structs.replace(ANYWHERE, node=named)


def of_annotations(pod: objects.Pod) -> Rules | None:
    """Only what kube-scheduler does not know: for pods that we need to know nothing else of."""
    named = _named(pod)
    return Rules(node=named) if named else None


def _named(pod: objects.Pod) -> str:
    """Pods of other schedulers may use that annotation for something else. A name that is too long is no node's."""
    if pod.spec.scheduler_name != names.GPU_SCHEDULER or not pod.metadata.annotations:
        return ""
    return pod.metadata.annotations.get(names.NODE_NAME, "")[: LONGEST_NAME + 1]


def _is_short(rules: Rules) -> bool:
    terms = rules.terms or ()
    expressions = [e for t in terms for e in (*(t.match_expressions or ()), *(t.match_fields or ()))] if terms else []
    conditions = len(expressions) + len(terms) + len(rules.selector) + len(rules.tolerations)
    values = [value for expression in expressions for value in expression.values or ()] if terms else []
    if conditions > MOST_CONDITIONS or len(values) > MOST_VALUES:
        return False
    text = sum([len(toleration.key) + len(toleration.value) for toleration in rules.tolerations])
    if terms or rules.selector:
        words = [word for pair in rules.selector for word in pair] + [expression.key for expression in expressions]
        text += sum(map(len, (*words, *values)))
    return text <= MOST_TEXT
