"""Callbacks for ``model.fit`` of Keras 2, with Horovod's names."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos import _session
from syrtos._objects import allgather_object
from syrtos.errors import InvalidRequestError
from syrtos.tensorflow import adapter
from syrtos.tensorflow.functions import broadcast_, broadcast_global_variables
from syrtos.tensorflow.keras_legacy import _objects, epochs
from syrtos.tensorflow.keras_legacy._objects import keras
from syrtos.tensorflow.keras_legacy.hooks import Hooks, hooks_of
from syrtos.tensorflow.keras_legacy.metrics import average_logs
from syrtos.tensorflow.keras_legacy.optimizer import hook_of
from syrtos.tensorflow.keras_legacy.schedules import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)
from syrtos.tensorflow.keras_legacy.state import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CommitStateCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]

_log = logging.getLogger("syrtos")


def _has_weights(model: Any) -> bool:
    """Whether the model's variables exist: not yet where its input shape comes with the data."""
    return bool(model.built) and all(layer.built for layer in model.layers)


class TogetherCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the epochs of all ranks together: see `syrtos.tensorflow.keras_legacy.epochs`.

    Several of them on one model do it once. In graphs of ``tf.compat.v1`` all ranks need the same
    number of batches.
    """

    hooks: Hooks

    def set_model(self, model: Any) -> None:
        """Take the model; see Keras."""
        super().set_model(model)
        self.hooks = hooks_of(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Have the last word of each epoch."""
        self.hooks.agree_on_stop_last(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Take note that batches follow."""
        self.hooks.begin_epoch()

    def on_train_end(self, logs: Any = None) -> None:
        """Leave nothing behind in the history."""
        self.hooks.release_history(self.model)


class BroadcastGlobalVariablesCallback(TogetherCallback):
    """Begins training from the root's weights, optimizer state and epoch on all ranks.

    It also keeps the ranks together: one that runs out of batches waits for the others, whose
    averages then divide by the number of ranks at work; when an epoch ends, all have the same
    weights. If one rank's callback stops training, it stops on all.

    Give it to all ranks, after a callback that restores a checkpoint on the root.

    Parameters
    ----------
    root_rank : int
        The rank whose values count.
    device : str
        No effect: kept for Horovod's signature.
    local_variables : list of variable, optional
        Variables that stay each rank's own.
    average_moving_statistics : bool
        Average what the layers ``BatchNormalization`` have gathered after the batches of each
        epoch, so that all ranks validate and save the same model.

    Notes
    -----
    A model that gets its input shape from the data has no weights before the first batch; then the
    broadcast follows at the end of that batch. So it does in graphs of ``tf.compat.v1``.
    """

    def __init__(
        self,
        root_rank: int = 0,
        device: str = "",
        local_variables: Sequence[Any] | None = None,
        *,
        average_moving_statistics: bool = True,
    ) -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        self.broadcast_done = False
        self.average_moving_statistics = average_moving_statistics
        self._local = {adapter.key_of(variable): variable for variable in local_variables or ()}

    def register_local_var(self, variable: Any) -> None:
        """Leave this variable as it is on each rank.

        Parameters
        ----------
        variable : variable
            A weight of the model.
        """
        self._local[adapter.key_of(variable)] = variable

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast, if there is anything to broadcast yet."""
        super().on_train_begin(logs)
        self.broadcast_done = False
        if not self.hooks.works:
            return
        self.hooks.local = self._local
        self.hooks.root_rank = self.root_rank
        self.hooks.moving_statistics = self.average_moving_statistics
        hook = hook_of(self.model.optimizer)
        if hook is not None and not hook.seen:
            # A training function that was traced before the optimizer was wrapped would not reduce.
            hook.seen = True
            self.model.make_train_function(force=True)
        of_ranks = allgather_object((_has_weights(self.model), (self.params or {}).get("steps")))
        steps = [number for _, number in of_ranks]
        if len(set(steps)) > 1 and _session.topology().rank == 0:
            _log.info(
                "The ranks have different numbers of steps in an epoch: %s. Those with fewer wait "
                "for the others at its end.",
                steps,
            )
        if all(ready for ready, _ in of_ranks):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast after the first batch what did not exist before."""
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        self.broadcast_done = True
        if not self.hooks.works:
            session = tf.compat.v1.keras.backend.get_session()
            session.run(broadcast_global_variables(self.root_rank))
            return
        if not _objects.is_built(self.model.optimizer):
            _objects.build(self.model.optimizer, self.model.trainable_variables)
        broadcast_(epochs.shared_state(self.model, self._local), self.root_rank)


class MetricAverageCallback(TogetherCallback):
    """Makes the metrics of ``fit`` and ``evaluate`` those of all ranks' samples.

    The state of the metrics is summed before their result is read, so the values are exact however
    unevenly samples are spread, and every callback, the history and the return values see them.
    Batch by batch, the progress bar shows this rank's own values.

    As `BroadcastGlobalVariablesCallback` does, it lets ranks that have run out of batches wait for
    the others, and stops training on all ranks if it stops on one.

    Parameters
    ----------
    device : str
        No effect: kept for Horovod's signature.

    Notes
    -----
    In graphs of ``tf.compat.v1``, and for values that a ``train_step`` of one's own returns and no
    metric holds, the results are averaged with equal weights. In graphs that happens in
    ``on_epoch_end``, which reaches only the callbacks that come later in the list.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def set_model(self, model: Any) -> None:
        """Take the model; see Keras."""
        super().set_model(model)
        self.hooks.metrics = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average the results where the metrics could not be summed."""
        if logs and not self.hooks.works:
            logs.update(average_logs(logs))


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the model whenever it is the best so far; rank 0 alone writes.

    With `MetricAverageCallback`, the ranks agree on which model that is.

    Parameters
    ----------
    monitor : str
        The metric that decides.
    verbose : int
        1: rank 0 tells when it saves.
    save_weights_only : bool
        Save the weights alone.
    mode : str
        "min", "max" or "auto".
    save_freq : str or int
        "epoch", or after so many batches.
    filepath : path, optional
        It can also be set later, as the attribute of this name, before training begins.

    Raises
    ------
    InvalidRequestError
        Training begins without a `filepath`; also a ``ValueError``.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        *,
        filepath: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            filepath="unset" if filepath is None else os.fspath(filepath),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        if filepath is None:
            self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuse to begin without a path."""
        if self.filepath is None:
            raise InvalidRequestError(
                "BestModelCheckpoint does not know where to save: give filepath=..., or set its "
                "attribute filepath before training."
            )
        self.filepath = os.fspath(self.filepath)
        super().on_train_begin(logs)

    def _save_model(self, epoch: Any, batch: Any, logs: Any) -> None:
        if not _session.is_started() or _session.topology().rank == 0:
            super()._save_model(epoch=epoch, batch=batch, logs=logs)
