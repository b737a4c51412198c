"""What a pod's spec says about the nodes it may use: selector, required node affinity and tolerations.

`intree.admits` compares it with nodes.
"""

from gpushare.core.facts import objects
from gpushare.core.facts.model import Rules

MOST_CONDITIONS, MOST_VALUES, MOST_TEXT = 32, 256, 16_384  # of the rules of one pod
ANYWHERE = Rules(tolerations=(objects.Toleration(operator="Exists"),))


def read(spec: objects.PodSpec) -> Rules | None:
    """The rules of a pod; None if it has none. Every node is compared with them, so very long rules are not read: such
    a pod counts as one that may go anywhere."""
    terms = spec.required_terms
    if not spec.node_selector and terms is None and not spec.tolerations:
        return None
    rules = Rules(tuple(sorted((spec.node_selector or {}).items())), terms, spec.tolerations or ())
    return rules if _is_short(rules) else ANYWHERE


def _is_short(rules: Rules) -> bool:
    terms = rules.terms or ()
    expressions = [e for t in terms for e in (*(t.match_expressions or ()), *(t.match_fields or ()))]
    conditions = len(expressions) + len(terms) + len(rules.selector) + len(rules.tolerations)
    values = [value for expression in expressions for value in expression.values or ()]
    if conditions > MOST_CONDITIONS or len(values) > MOST_VALUES:
        return False
    words = [word for pair in rules.selector for word in pair]
    words += [word for toleration in rules.tolerations for word in (toleration.key, toleration.value)]
    words += [expression.key for expression in expressions]
    return sum(map(len, (*words, *values))) <= MOST_TEXT
