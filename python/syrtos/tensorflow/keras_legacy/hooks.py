"""What this lane changes on a model of Keras 2: how an epoch begins, ends and is judged.

Keras 2 reads the metrics of an epoch, and of an evaluation, in one method and nowhere else: right
after the last batch, before validation and all callbacks. So that method is replaced, on the
instance; and the one by which ``fit`` learns with which epoch it begins.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from syrtos import _session
from syrtos._objects import broadcast_object
from syrtos.tensorflow.keras_legacy import epochs, metrics

__all__ = ["Hooks", "attach", "hooks_of", "local"]

_MARK = "_syrtos_hooks"
_RESULTS = "_validate_and_get_metrics_result"
#: ``fit`` asks it for the first epoch and step, after ``on_train_begin``.
_COUNTERS = "_maybe_load_initial_counters_from_ckpt"

# How often `local` has been entered.
_local_depth = 0


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


class Hooks:
    """What a model carries that callbacks of Syrtos have been given to.

    Parameters
    ----------
    model : tf_keras.Model
        It gets the replaced methods, except in graphs of ``tf.compat.v1``.

    Attributes
    ----------
    works : bool
        Whether there are replaced methods.
    metrics : bool
        Whether the metrics become those of all ranks.
    moving_statistics : bool
        Whether batch normalisation's moving statistics are averaged after each epoch.
    local : dict
        Weights that stay each rank's own, by their key.
    root_rank : int or None
        The rank whose first epoch counts; None: each rank's own.
    """

    def __init__(self, model: Any) -> None:
        self.works = tf.compat.v1.executing_eagerly_outside_functions()
        self.metrics = False
        self.moving_statistics = False
        self.local: dict[int, Any] = {}
        self.root_rank: int | None = None
        # Whether an epoch has begun and its batches have not ended; evaluations run inside of it.
        self._in_batches = False
        self._evaluations = 0
        methods: dict[str, Callable[..., Any]] = {
            "evaluate": _evaluate,
            _RESULTS: _end_then_read,
            _COUNTERS: _agree_on_epoch,
        }
        for name, function in methods.items() if self.works else ():
            # Past Keras' own __setattr__, which tracks what is assigned.
            object.__setattr__(model, name, types.MethodType(function, model))

    def begin_epoch(self) -> None:
        """Take note that batches follow; as often as one likes."""
        self._in_batches = True

    def end_batches(self, model: Any) -> None:
        """Wait for the ranks that still have batches, and bring all to the same state."""
        if self._in_batches and not self._evaluations:
            self._in_batches = False
            epochs.end_batches(model, self.moving_statistics, self.local)

    def agree_on_stop_last(self, model: Any) -> None:
        """Let the ranks agree on ``stop_training`` after all callbacks of an epoch.

        Keras puts its own history behind the user's callbacks, so what it does comes last.
        """
        history = getattr(model, "history", None)
        plain = getattr(history, "on_epoch_end", None)
        if not self.works or plain is None or getattr(history, _MARK, None) is not None:
            return

        def on_epoch_end(epoch: int, logs: Any = None) -> None:
            plain(epoch, logs)
            if _session.is_started():
                epochs.agree_on_stop(model)

        history.on_epoch_end = on_epoch_end  # type: ignore[union-attr]
        setattr(history, _MARK, self)

    def release_history(self, model: Any) -> None:
        """Give the user a history as Keras makes it."""
        history = getattr(model, "history", None)
        if getattr(history, _MARK, None) is self:
            del history.on_epoch_end  # type: ignore[union-attr]
            delattr(history, _MARK)


def _end_then_read(self: Any, logs: Any) -> Any:
    plain = getattr(type(self), _RESULTS)
    if _local_depth or not _session.is_started():
        return plain(self, logs)
    hooks = hooks_of(self)
    hooks.end_batches(self)
    if not hooks.metrics or not isinstance(logs, dict):
        return plain(self, logs)
    if set(logs) != {metric.name for metric in self.metrics}:
        # A train_step of the user's returns values that no metric holds.
        return metrics.average_logs(logs)
    metrics.sum_metrics(self)
    return plain(self, logs)


def _evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
    hooks = hooks_of(self)
    hooks._evaluations += 1
    try:
        return type(self).evaluate(self, *args, **kwargs)
    finally:
        hooks._evaluations -= 1


def _agree_on_epoch(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the root's first epoch and step: it alone may have restored a backup."""
    counters = getattr(type(self), _COUNTERS)(self, *args, **kwargs)
    root = hooks_of(self).root_rank
    return counters if root is None else broadcast_object(counters, root)


def hooks_of(model: Any) -> Hooks:
    """Return the hooks of a model, which gets some if it has none."""
    hooks = getattr(model, _MARK, None)
    if not isinstance(hooks, Hooks):
        hooks = Hooks(model)
        object.__setattr__(model, _MARK, hooks)
    return hooks


def attach(model: Any) -> Any:
    """Make the metrics of ``fit`` and ``evaluate`` those of all ranks' samples.

    `MetricAverageCallback` does this; call it yourself for a script that only evaluates. From then
    on every rank must call ``evaluate``, except inside `local`.

    Parameters
    ----------
    model : tf_keras.Model
        Compiled or not. In graphs of ``tf.compat.v1`` it has no effect.

    Returns
    -------
    tf_keras.Model
        The same object.
    """
    hooks_of(model).metrics = True
    return model
