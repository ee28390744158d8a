"""Learning rates that are part of the training step, for the optimizer's ``learning_rate``.

They do what the callbacks of the same purpose do, without any work between batches::

    rate = hvd.schedules.warmup(0.1 * hvd.size(), warmup_steps=500)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9))
"""

from __future__ import annotations

from typing import Any

import keras

from syrtos import _session
from syrtos.errors import InvalidRequestError

__all__ = ["LearningRateWarmup", "warmup"]


def warmup(learning_rate: Any, warmup_steps: int, size: int | None = None) -> Any:
    """Return a learning rate that grows from that of one rank to that of all.

    Step by step, and linearly: from about ``learning_rate / size`` to `learning_rate`, which it has
    in the last step of the warm-up, as with `LearningRateWarmupCallback`.

    Parameters
    ----------
    learning_rate : float or keras.optimizers.schedules.LearningRateSchedule
        The rate for all ranks, already multiplied by their number.
    warmup_steps : int
        How long it takes, in batches.
    size : int, optional
        The number of ranks; by default that of the world.

    Returns
    -------
    keras.optimizers.schedules.LearningRateSchedule
        For a number one of Keras' own, so a saved model loads where Syrtos is not installed. For a
        schedule a `LearningRateWarmup`, which needs ``import syrtos.keras`` before loading.

    Raises
    ------
    InvalidRequestError
        `warmup_steps` or `size` is less than 1.
    """
    size = _session.topology().size if size is None else size
    if isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        return LearningRateWarmup(learning_rate, warmup_steps, size)
    _check(warmup_steps, size)
    rate = float(learning_rate)
    if warmup_steps == 1 or size == 1:
        return keras.optimizers.schedules.PiecewiseConstantDecay([0], [rate, rate])
    return keras.optimizers.schedules.PolynomialDecay(
        rate * (size - 1 + warmup_steps) / (warmup_steps * size),
        decay_steps=warmup_steps - 1,
        end_learning_rate=rate,
    )


def _check(warmup_steps: int, size: int) -> None:
    if warmup_steps < 1 or size < 1:
        raise InvalidRequestError(
            f"warmup: warmup_steps={warmup_steps!r} and size={size!r} must be 1 or more."
        )


@keras.saving.register_keras_serializable(package="syrtos")
class LearningRateWarmup(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """Another schedule, with the learning rate of its first steps scaled up from one rank's.

    Parameters
    ----------
    schedule : keras.optimizers.schedules.LearningRateSchedule
        The rate for all ranks.
    warmup_steps : int
        How long the warm-up takes, in batches.
    size : int
        The number of ranks.

    Raises
    ------
    InvalidRequestError
        `warmup_steps` or `size` is less than 1.
    """

    def __init__(self, schedule: Any, warmup_steps: int, size: int) -> None:
        super().__init__()
        _check(warmup_steps, size)
        self.schedule = schedule
        self.warmup_steps = warmup_steps
        self.size = size

    def __call__(self, step: Any) -> Any:
        """Return the rate of a step, counted from 0."""
        whole = float(self.warmup_steps)
        done = keras.ops.minimum(keras.ops.cast(step, "float32") + 1.0, whole)
        factor = (done * (self.size - 1) + whole) / (whole * self.size)
        return self.schedule(step) * factor

    def get_config(self) -> dict[str, Any]:
        """Return what makes an equal schedule."""
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "warmup_steps": self.warmup_steps,
            "size": self.size,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LearningRateWarmup:
        """Make a schedule of what `get_config` returns."""
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**{**config, "schedule": schedule})
