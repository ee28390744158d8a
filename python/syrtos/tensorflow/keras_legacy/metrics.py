"""Metrics of all ranks' samples: the ranks' metric states, made one before the result is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos._objects import allgather_object
from syrtos.errors import InvalidRequestError
from syrtos.tensorflow import adapter
from syrtos.tensorflow.reductions import grouped_allreduce

__all__ = ["average_logs", "sum_metrics"]

_NAMED = {
    "sum": ReduceOp.Sum,
    "mean": ReduceOp.Average,
    "max": ReduceOp.Max,
    "min": ReduceOp.Min,
    "none": None,
}
_AGGREGATED = {
    tf.VariableAggregation.SUM: ReduceOp.Sum,
    tf.VariableAggregation.MEAN: ReduceOp.Average,
}


def _op_of(metric: Any, variable: Any) -> ReduceOp | None:
    """Return how the values of several ranks become one; None if each keeps its own."""
    wanted = getattr(metric, "syrtos_op", None)
    if wanted is None:
        return _AGGREGATED.get(variable.aggregation)
    if wanted not in _NAMED:
        raise InvalidRequestError(
            f'metric "{metric.name}": syrtos_op={wanted!r} says nothing; use one of '
            f"{', '.join(map(repr, _NAMED))}."
        )
    return _NAMED[wanted]


def _states(model: Any) -> dict[ReduceOp, list[Any]]:
    """Return the metric variables by how the values of several ranks become one."""
    states: dict[ReduceOp, dict[int, Any]] = {}
    for metric in model.metrics:
        for variable in metric.variables:
            op = _op_of(metric, variable)
            if op is not None:
                states.setdefault(op, {})[adapter.key_of(variable)] = variable
    return {op: list(variables.values()) for op, variables in states.items()}


def sum_metrics(model: Any) -> None:
    """Replace this rank's metric state by that of all ranks' samples.

    Parameters
    ----------
    model : tf_keras.Model
        All ranks must call this alike. The state of a metric is summed; a metric whose state is no
        sum says so with an attribute ``syrtos_op``: "max", "min", "mean" or "none".

    Raises
    ------
    InvalidRequestError
        A metric's ``syrtos_op`` is none of these.
    """
    # Named, so that a rank that evaluates alone is told which metrics the others did not ask for.
    what = f"metrics {', '.join(dict.fromkeys(metric.name for metric in model.metrics))}"
    for op, variables in sorted(_states(model).items()):
        values = grouped_allreduce(
            variables,
            op=op,
            name=f"{what} ({op.name.lower()})",
            tensor_names=[adapter.name_of(variable) for variable in variables],
        )
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


def average_logs(logs: dict[str, Any]) -> dict[str, Any]:
    """Return results averaged over the ranks with equal weights.

    Parameters
    ----------
    logs : dict of str to number
        The same names on every rank.
    """
    of_ranks = allgather_object({name: float(value) for name, value in logs.items()})
    return {name: float(np.mean([other[name] for other in of_ranks])) for name in logs}
