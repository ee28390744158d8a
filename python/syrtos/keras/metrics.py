"""Metrics of all ranks' samples: the ranks' metric states, made one before the result is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.keras._backend import current

__all__ = ["sum_metrics"]

_OPS = {
    "sum": ReduceOp.Sum,
    "mean": ReduceOp.Average,
    "max": ReduceOp.Max,
    "min": ReduceOp.Min,
}
#: Each rank keeps its own.
_KEPT = ("none", "only_first_replica")


def _parts(metric: Any) -> Any:
    return getattr(metric, "metrics", None) or getattr(metric, "_metrics", ())


def _with_parts(metrics: Iterable[Any]) -> Iterator[Any]:
    """All metrics, those that others are made of first."""
    for metric in metrics:
        yield from _with_parts(_parts(metric))
        yield metric


def _op_of(metric: Any, variable: Any) -> ReduceOp | None:
    """Return how the values of several ranks become one; None if each keeps its own."""
    wanted = getattr(metric, "syrtos_op", None) or getattr(variable, "aggregation", None) or "sum"
    if wanted in _KEPT:
        return None
    try:
        return _OPS[wanted]
    except KeyError:
        raise InvalidRequestError(
            f'metric "{metric.name}": syrtos_op={wanted!r} says nothing; use one of '
            f"{', '.join(map(repr, [*_OPS, 'none']))}."
        ) from None


def _states(model: Any) -> dict[ReduceOp, list[Any]]:
    """Return the metric variables by how the values of several ranks become one."""
    states: dict[ReduceOp, list[Any]] = {}
    seen: set[int] = set()
    for metric in _with_parts(model.metrics):
        for variable in metric.variables:
            if current.key_of(variable) in seen:
                continue
            seen.add(current.key_of(variable))
            op = _op_of(metric, variable)
            if op is not None:
                states.setdefault(op, []).append(variable)
    return states


def sum_metrics(model: Any) -> None:
    """Replace this rank's metric state by that of all ranks' samples.

    Parameters
    ----------
    model : keras.Model
        All ranks must call this alike. The state of a metric is summed; a metric whose state is no
        sum says so with an attribute ``syrtos_op``: "max", "min", "mean" or "none".

    Raises
    ------
    InvalidRequestError
        A metric's ``syrtos_op`` is none of these.
    """
    # Named, so that a rank that evaluates alone is told which metrics the others did not ask for,
    # and is never taken to mean the gradients that they are at.
    names = [metric.name for metric in _with_parts(model.metrics) if not _parts(metric)]
    what = f"metrics {', '.join(dict.fromkeys(names))}"
    for op, variables in sorted(_states(model).items()):
        values = current.grouped_allreduce(
            [current.to_tensor(variable) for variable in variables],
            op=op,
            name=f"{what} ({op.name.lower()})",
            names=[current.name_of(variable) for variable in variables],
        )
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
