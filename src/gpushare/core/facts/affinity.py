"""Required node affinity: does a node meet a condition on its labels or its name, and how is a condition written?

Pure. Terms and conditions have the same meaning as in kube-scheduler.
"""

from collections.abc import Mapping, Sequence

from gpushare.core.facts.objects import Expression, Term

NODE_NAME = "metadata.name"  # the only field that `matchFields` may name
MOST_SHOWN = 3  # values that are written of one condition
_INT64 = 1 << 63


def meets(term: Term, labels: Mapping[str, str], name: str) -> bool:
    """Whether all conditions are met. A term without any condition matches nothing."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    if not all(_holds(expression, labels.get(expression.key)) for expression in expressions):
        return False
    return all(_holds(expression, _field(expression, name)) for expression in fields)


def missed(term: Term, labels: Mapping[str, str], name: str) -> list[Expression]:
    """The conditions that are not met."""
    of_labels = [e for e in term.match_expressions or () if not _holds(e, labels.get(e.key))]
    return of_labels + [e for e in term.match_fields or () if not _holds(e, _field(e, name))]


def names_others(terms: Sequence[Term], name: str) -> bool:
    """Whether each term asks for nodes by name, and none of them for this one."""
    for term in terms:
        by_name = [e for e in term.match_fields or () if e.key == NODE_NAME and e.operator == "In"]
        if not by_name or all(name in (expression.values or ()) for expression in by_name):
            return False
    return bool(terms)


def written(expression: Expression) -> str:
    """As `kubectl get -l` takes it."""
    key, values = expression.key, expression.values or ()
    match expression.operator:
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case "Gt" | "Lt":
            return f"{key}{'>' if expression.operator == 'Gt' else '<'}{','.join(values)}"
    more = "" if len(values) <= MOST_SHOWN else ",…"
    return f"{key} {expression.operator.lower()} ({','.join(values[:MOST_SHOWN])}{more})"


def _field(expression: Expression, name: str) -> str | None:
    return name if expression.key == NODE_NAME else None


def _holds(expression: Expression, has: str | None) -> bool:
    """Whether a value of a node meets a condition. A condition that no API server accepts is never met."""
    values = expression.values or ()
    match expression.operator:
        case "In":
            return has in values
        case "NotIn":
            return has not in values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "Gt" | "Lt":
            return has is not None and len(values) == 1 and _compares(expression.operator, has, values[0])
    return False


def _compares(operator: str, has: str, wanted: str) -> bool:
    one, other = _number(has), _number(wanted)
    if one is None or other is None:
        return False
    return one > other if operator == "Gt" else one < other


def _number(text: str) -> int | None:
    """A whole number of 64 bits, as Go reads it."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 100):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None
