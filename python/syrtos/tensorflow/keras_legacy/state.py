"""Callbacks for Keras 2 that keep the state of an elastic training; see `elastic` beside it."""

from __future__ import annotations

from syrtos.elastic.keras_callbacks import CommitState, UpdateBatchState, UpdateEpochState
from syrtos.tensorflow.keras_legacy._objects import keras

__all__ = ["CommitStateCallback", "UpdateBatchStateCallback", "UpdateEpochStateCallback"]


class CommitStateCallback(CommitState, keras.callbacks.Callback):  # type: ignore[misc]  # noqa: D101
    __doc__ = CommitState.__doc__


class UpdateBatchStateCallback(UpdateBatchState, keras.callbacks.Callback):  # type: ignore[misc]  # noqa: D101
    __doc__ = UpdateBatchState.__doc__


class UpdateEpochStateCallback(UpdateEpochState, keras.callbacks.Callback):  # type: ignore[misc]  # noqa: D101
    __doc__ = UpdateEpochState.__doc__
