"""Callbacks that set the learning rate, with Horovod's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from syrtos import _session
from syrtos.errors import InvalidRequestError

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
        No effect: Keras 3 takes momentum into the compiled step as a constant.
    steps_per_epoch : int, optional
        Batches of an epoch, where Keras cannot know.

    Notes
    -----
    The rate of each epoch is added to its logs as ``lr``. With ``staircase=False``, and on JAX in
    particular, setting the rate before every batch costs time; a schedule that the optimizer is
    made with, such as `syrtos.keras.schedules.warmup`, does not.

    Raises
    ------
    InvalidRequestError
        In training, if the optimizer's learning rate is a schedule; also a ``ValueError``.
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
        del momentum_correction
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.steps_per_epoch = steps_per_epoch
        self._multiplier = multiplier
        self._epoch = 0

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
        rate = self.initial_lr * self.factor(epoch, batch)
        try:
            self.model.optimizer.learning_rate = rate
        except TypeError as error:
            raise InvalidRequestError(
                f"{type(self).__name__}: the optimizer's learning rate is a schedule already. Give "
                "the optimizer a number, or put this into the schedule, with "
                "syrtos.keras.schedules.warmup or a schedule of Keras."
            ) from error

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set the rate of the epoch."""
        self._epoch = epoch
        if self.staircase:
            self._set(epoch, 0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the rate of the batch."""
        if not self.staircase:
            self._set(self._epoch, batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Tell the rate."""
        if logs is not None:
            rate = self.model.optimizer.learning_rate
            logs["lr"] = float(keras.ops.convert_to_numpy(rate))


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
        No effect, see `LearningRateScheduleCallback`.
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
