"""What `syrtos.keras` changes on a model: what happens when a rank has no more batches.

Keras reads the metrics of an epoch, and of an evaluation, in one method and nowhere else: from
3.3.3 on, right after the last batch, before validation and all callbacks, when also for JAX the
variables hold the current values. So that method is replaced, on the instance.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from syrtos import _session
from syrtos.keras import epochs
from syrtos.keras._backend import current
from syrtos.keras.metrics import sum_metrics
from syrtos.keras.planted import hook_of

__all__ = ["Hooks", "attach", "has_metric_hook", "hooks_of", "local", "switch_off_xla"]

_MARK = "_syrtos_hooks"
_METHOD = "_get_metrics_result_or_logs"

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


def has_metric_hook(model: Any) -> bool:
    """Whether this release of Keras has the method that `attach` replaces."""
    return hasattr(type(model), _METHOD)


class Hooks:
    """What a model carries that callbacks of Syrtos have been given to.

    Parameters
    ----------
    model : keras.Model
        It gets the replaced methods.
    """

    def __init__(self, model: Any) -> None:
        #: Whether the metrics become those of all ranks.
        self.metrics = False
        #: Whether batch normalisation's moving statistics are averaged after each epoch.
        self.moving_statistics = False
        #: Weights that stay each rank's own, by the backend's key.
        self.local: dict[int, Any] = {}
        #: What else is to be done before a rank counts as one without batches.
        self.before_the_end: Callable[[], None] | None = None
        # Whether an epoch has begun and its batches have not ended; evaluations run inside of it.
        self._in_batches = False
        self._evaluations = 0
        methods: dict[str, Callable[..., Any]] = {"evaluate": _evaluate}
        if has_metric_hook(model):
            methods[_METHOD] = _end_then_read
        for name, function in methods.items():
            # Past Keras' own __setattr__, which tracks what is assigned.
            object.__setattr__(model, name, types.MethodType(function, model))

    def begin_epoch(self) -> None:
        """Take note that batches follow; as often as one likes."""
        self._in_batches = True

    def end_batches(self, model: Any) -> None:
        """Wait for the ranks that still have batches, and bring all to the same state."""
        if not self._in_batches or self._evaluations:
            return
        self._in_batches = False
        if self.before_the_end is not None:
            self.before_the_end()
        epochs.end_batches(model, self.moving_statistics, self.is_local_of(model))

    def is_local_of(self, model: Any) -> Callable[[Any], bool]:
        """Return whether a weight is each rank's own, as the optimizer or a callback was told."""
        hook = hook_of(getattr(model, "optimizer", None))

        def is_local(weight: Any) -> bool:
            return current.key_of(weight) in self.local or (
                hook is not None and hook.is_local(weight)
            )

        return is_local

    def agree_on_stop_last(self, model: Any) -> None:
        """Let the ranks agree on ``stop_training`` after all callbacks of an epoch.

        Keras puts its own history behind the user's callbacks, so what it does comes last.
        """
        history = getattr(model, "history", None)
        plain = getattr(history, "on_epoch_end", None)
        if plain is None or getattr(history, _MARK, None) is not None:
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
    if not _local_depth and _session.is_started():
        hooks = hooks_of(self)
        hooks.end_batches(self)
        if hooks.metrics:
            sum_metrics(self)
    return getattr(type(self), _METHOD)(self, logs)


def _evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
    hooks = hooks_of(self)
    hooks._evaluations += 1
    try:
        return type(self).evaluate(self, *args, **kwargs)
    finally:
        hooks._evaluations -= 1


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
    model : keras.Model
        Compiled or not.

    Returns
    -------
    keras.Model
        The same object.
    """
    hooks_of(model).metrics = True
    return model


def switch_off_xla(model: Any) -> None:
    """Let Keras train without XLA where it cannot compile the collectives; say so once."""
    if current.COMPILES_COLLECTIVES or not model.jit_compile:
        return
    model.jit_compile = False
    if _session.is_started() and _session.topology().rank == 0:
        print(
            f'syrtos.keras: model "{model.name}" is trained with jit_compile=False, since XLA '
            "cannot compile the collectives.",
            file=sys.stderr,
        )
