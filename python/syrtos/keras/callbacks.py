"""Callbacks for ``model.fit``, with Horovod's names."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import keras

from syrtos import _session
from syrtos._kinds import ReduceOp
from syrtos._objects import allgather_object
from syrtos.keras import hooks
from syrtos.keras.optimizer import hook_of
from syrtos.keras.schedules import LearningRateScheduleCallback, LearningRateWarmupCallback
from syrtos.tensorflow import adapter
from syrtos.tensorflow.functions import broadcast_
from syrtos.tensorflow.reductions import allreduce

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

_log = logging.getLogger("syrtos")


def _has_weights(model: Any) -> bool:
    """Whether the model's variables exist: not yet where its input shape comes with the data."""
    return bool(model.built) and all(layer.built for layer in model.layers)


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Begins training from the root's weights, optimizer state and epoch on all ranks.

    Give it to all ranks, after a callback that restores a checkpoint on the root.

    Parameters
    ----------
    root_rank : int
        The rank whose values count.
    device : str
        No effect: kept for Horovod's signature.
    local_variables : list of variable, optional
        Variables that stay each rank's own.

    Notes
    -----
    A model that gets its input shape from the data has no weights before the first batch; then the
    broadcast follows at the end of that batch. States of random generators are left alone, so that
    dropout masks differ between ranks.
    """

    def __init__(
        self, root_rank: int = 0, device: str = "", local_variables: Sequence[Any] | None = None
    ) -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        self.broadcast_done = False
        self._local = {adapter.key_of(variable) for variable in local_variables or ()}

    def register_local_var(self, variable: Any) -> None:
        """Leave this variable as it is on each rank.

        Parameters
        ----------
        variable : variable
            A weight of the model.
        """
        self._local.add(adapter.key_of(variable))

    def set_model(self, model: Any) -> None:
        """Take the model; see Keras."""
        super().set_model(model)
        hooks.switch_off_xla(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Agree on the first epoch and broadcast, if there is anything to broadcast yet."""
        model = self.model
        hook = hook_of(model.optimizer)
        if hook is not None and not hook.seen:
            # A training function that was traced before the optimizer was wrapped would not reduce.
            hook.seen = True
            model.make_train_function(force=True)
        mine = (model._initial_epoch, _has_weights(model), (self.params or {}).get("steps"))
        of_ranks = allgather_object(mine)
        model._initial_epoch = of_ranks[self.root_rank][0]
        self._check_steps([steps for _, _, steps in of_ranks])
        self.broadcast_done = False
        if all(ready for _, ready, _ in of_ranks):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast after the first batch what did not exist before."""
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        model = self.model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        variables = [
            variable
            for variable in [*model.weights, *model.optimizer.variables]
            if adapter.key_of(variable) not in self._local
        ]
        broadcast_(variables, self.root_rank)
        self.broadcast_done = True

    def _check_steps(self, steps: list[int | None]) -> None:
        if len(set(steps)) > 1 and _session.topology().rank == 0:
            _log.warning(
                "The ranks have different numbers of steps in an epoch: %s. Training will wait for "
                "the shorter ones in vain; pass the same steps_per_epoch to fit() on all ranks.",
                steps,
            )


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes the metrics of ``fit`` and ``evaluate`` those of all ranks' samples.

    The state of the metrics is summed before their result is read, so the values are exact however
    unevenly samples are spread, and every callback, the history and the return values see them.
    Batch by batch, the progress bar shows this rank's own values.

    Parameters
    ----------
    device : str
        No effect: kept for Horovod's signature.

    Notes
    -----
    Keras before 3.3.3 has no place for that: there the results are averaged with equal weights in
    ``on_epoch_end``, which reaches only the callbacks that come later in the list.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def set_model(self, model: Any) -> None:
        """Take the model; see Keras."""
        super().set_model(model)
        if hooks.has_metric_hook(model):
            hooks.attach(model)
        else:
            warnings.warn(
                f"Keras {keras.__version__} lets Syrtos only average the ranks' results, not sum "
                "their metrics: put MetricAverageCallback first in the list of callbacks, or use "
                "Keras 3.3.3 or newer.",
                stacklevel=2,
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average the results where the metrics could not be summed."""
        if not logs or hooks.has_metric_hook(self.model):
            return
        names = sorted(logs)
        values = keras.ops.convert_to_tensor([float(logs[name]) for name in names], "float64")
        means = allreduce(values, op=ReduceOp.Average)
        for name, value in zip(names, means, strict=True):
            logs[name] = float(value)
