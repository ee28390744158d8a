"""What `syrtos.keras` changes on a model: metrics over all ranks, and no XLA around collectives."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from syrtos import _session
from syrtos._kinds import ReduceOp
from syrtos.tensorflow import adapter
from syrtos.tensorflow.reductions import grouped_allreduce

__all__ = ["attach", "has_metric_hook", "local", "switch_off_xla"]

_MARK = "_syrtos_metrics"
#: Keras reads the final metrics of an epoch or an evaluation there, and nowhere else (3.3.3 on).
_METHOD = "_get_metrics_result_or_logs"

# How often `local` has been entered.
_local_depth = 0

_OPS = {
    "sum": ReduceOp.Sum,
    "mean": ReduceOp.Average,
    "max": ReduceOp.Max,
    "min": ReduceOp.Min,
}


@contextlib.contextmanager
def local() -> Iterator[None]:
    """Let an evaluation of a model with averaged metrics run on this rank alone.

    Examples
    --------
    >>> import syrtos.keras as hvd
    >>> with hvd.local():
    ...     pass  # model.evaluate(...) on one rank only
    """
    global _local_depth
    _local_depth += 1
    try:
        yield
    finally:
        _local_depth -= 1


def has_metric_hook(model: Any) -> bool:
    """Whether this release of Keras has the method that `attach` replaces."""
    return hasattr(type(model), _METHOD)


def _parts(metric: Any) -> Any:
    return getattr(metric, "metrics", None) or getattr(metric, "_metrics", ())


def _with_parts(metrics: Any) -> Iterator[Any]:
    """All metrics, those that others are made of first."""
    for metric in metrics:
        yield from _with_parts(_parts(metric))
        yield metric


def _states(model: Any) -> dict[ReduceOp, list[Any]]:
    """Return the metric variables by how the values of several ranks become one."""
    states: dict[ReduceOp, list[Any]] = {}
    seen: set[int] = set()
    for metric in _with_parts(model.metrics):
        given = getattr(metric, "syrtos_op", None)
        for variable in metric.variables:
            if adapter.key_of(variable) in seen:
                continue
            seen.add(adapter.key_of(variable))
            op = _OPS.get(given or getattr(variable, "aggregation", None) or "sum")
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
    """
    # Named, so that a rank that evaluates alone is told which metrics the others did not ask for,
    # and is never taken to mean the gradients that they are at.
    names = [metric.name for metric in _with_parts(model.metrics) if not _parts(metric)]
    what = f"metrics {', '.join(dict.fromkeys(names))}"
    for op, variables in sorted(_states(model).items()):
        backing = [adapter.backing_variable(variable) for variable in variables]
        values = grouped_allreduce(
            backing,
            op=op,
            name=f"{what} ({op.name.lower()})",
            tensor_names=[adapter.name_of(variable) for variable in variables],
        )
        for variable, value in zip(backing, values, strict=True):
            variable.assign(value)


def _sum_then_read(self: Any, logs: Any) -> Any:
    if not _local_depth and _session.is_started():
        sum_metrics(self)
    return getattr(type(self), _METHOD)(self, logs)


def attach(model: Any) -> Any:
    """Make the metrics of ``fit`` and ``evaluate`` those of all ranks' samples.

    `MetricAverageCallback` does this; call it yourself for a script that only evaluates. From then
    on every rank must call ``evaluate``, except inside `local`.

    Parameters
    ----------
    model : keras.Model
        Compiled or not.

    Returns
    -------
    keras.Model
        The same object.
    """
    if getattr(model, _MARK, False) or not has_metric_hook(model):
        return model
    # Past Keras' own __setattr__, which tracks what is assigned.
    object.__setattr__(model, _METHOD, types.MethodType(_sum_then_read, model))
    object.__setattr__(model, _MARK, True)
    return model


def switch_off_xla(model: Any) -> None:
    """Let Keras train without XLA, which cannot compile the collectives; say so once."""
    if not model.jit_compile:
        return
    model.jit_compile = False
    if _session.is_started() and _session.topology().rank == 0:
        print(
            f'syrtos.keras: model "{model.name}" is trained with jit_compile=False, since XLA '
            "cannot compile the collectives.",
            file=sys.stderr,
        )
