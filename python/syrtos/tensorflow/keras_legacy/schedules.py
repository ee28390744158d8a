"""Callbacks for Keras 2 that set the learning rate, with Horovod's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from syrtos import _session
from syrtos.errors import InvalidRequestError
from syrtos.tensorflow.keras_legacy import _objects
from syrtos.tensorflow.keras_legacy._objects import keras

__all__ = ["LearningRateScheduleCallback", "LearningRateWarmupCallback"]


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to ``initial_lr * multiplier`` in a range of epochs.

    Parameters
    ----------
    initial_lr : float
        The rate that the multiplier refers to.
    multiplier : float or callable
        A function of the epoch: of its number, or with ``staircase=False`` of a fraction that grows
        from batch to batch.
    start_epoch : int
        First epoch of the range.
    end_epoch : int, optional
        First epoch after the range; without it there is no end.
    staircase : bool
        Set the rate once in an epoch; else before every batch.
    momentum_correction : bool
        In a batch whose rate differs from the one before, multiply momentum by the ratio of the
        rates. Only optimizers of ``tf_keras.optimizers.legacy`` keep their momentum in a variable;
        elsewhere it has no effect.
    steps_per_epoch : int, optional
        Batches of an epoch, where Keras cannot know.

    Notes
    -----
    The rate of each epoch is added to its logs as ``lr``.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self._multiplier = multiplier
        self._epoch = 0
        self._momentum: float | None = None

    def factor(self, epoch: int, batch: int) -> float:
        """Return the multiplier for a batch.

        Parameters
        ----------
        epoch, batch : int
            Counted from 0.
        """
        if not callable(self._multiplier):
            return self._multiplier
        if self.staircase:
            return self._multiplier(epoch)
        return self._multiplier(epoch + batch / self._steps())

    def _steps(self) -> int:
        steps = self.steps_per_epoch or (self.params or {}).get("steps")
        if not steps:
            raise InvalidRequestError(
                f"{type(self).__name__}: Keras does not know how many batches an epoch has; "
                "give steps_per_epoch."
            )
        return int(steps)

    def _set(self, epoch: int, batch: int) -> None:
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        optimizer = _objects.inner_of(self.model.optimizer)
        if _objects.has_schedule(optimizer):
            raise InvalidRequestError(
                f"{type(self).__name__}: the optimizer's learning rate is a schedule already. Give "
                "the optimizer a number, or put this into the schedule."
            )
        before = float(keras.backend.get_value(optimizer.learning_rate))
        rate = self.initial_lr * self.factor(epoch, batch)
        keras.backend.set_value(optimizer.learning_rate, rate)
        momentum = getattr(optimizer, "momentum", None)
        if self.momentum_correction and isinstance(momentum, tf.Variable) and before > 0:
            self._momentum = float(keras.backend.get_value(momentum))
            keras.backend.set_value(momentum, self._momentum * rate / before)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Take the number of the epoch."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the rate of the epoch, in its first batch, or of the batch."""
        if batch == 0 or not self.staircase:
            self._set(self._epoch, batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Give momentum its own value back."""
        if self._momentum is not None:
            optimizer = _objects.inner_of(self.model.optimizer)
            keras.backend.set_value(optimizer.momentum, self._momentum)
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Tell the rate."""
        if logs is not None:
            logs["lr"] = float(keras.backend.get_value(self.model.optimizer.learning_rate))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from that of one rank to that of all, batch by batch.

    The large batch of many ranks wants a large rate, but the first steps do not bear it. The rate
    grows linearly from about ``initial_lr / size()`` to ``initial_lr``, which it has in the last
    batch of the warm-up.

    Parameters
    ----------
    initial_lr : float
        The rate for all ranks, already multiplied by their number.
    warmup_epochs : int
        How long it takes.
    momentum_correction : bool
        See `LearningRateScheduleCallback`.
    steps_per_epoch : int, optional
        Batches of an epoch, where Keras cannot know.
    verbose : int
        If 1 or more, rank 0 says when the warm-up has ended.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            initial_lr,
            multiplier=lambda epoch: 1.0,  # not asked: see `factor`
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def factor(self, epoch: int, batch: int) -> float:
        """Return the multiplier for a batch: exactly 1 for the last one.

        Parameters
        ----------
        epoch, batch : int
            Counted from 0.
        """
        steps = self._steps()
        done, whole = epoch * steps + batch + 1, self.warmup_epochs * steps
        size = _session.topology().size
        return (done * (size - 1) + whole) / (whole * size)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Tell the rate, and the end of the warm-up."""
        super().on_epoch_end(epoch, logs)
        last = epoch == self.warmup_epochs - 1
        if last and self.verbose > 0 and _session.topology().rank == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate has reached {self.initial_lr:g}.")
