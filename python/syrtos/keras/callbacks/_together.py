"""What the callbacks share that keep the ranks together."""

from __future__ import annotations

from typing import Any

import keras

from syrtos import _session
from syrtos.keras import epochs
from syrtos.keras.hooks import Hooks, has_metric_hook, hooks_of

__all__ = ["TogetherCallback"]


class TogetherCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the epochs of all ranks together: see `syrtos.keras.epochs`.

    Several of them on one model do it once.
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

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End the batches where Keras has no better place for it."""
        model = self.model
        if not has_metric_hook(model) and _session.is_started():
            self.hooks.end_batches(model)
            epochs.agree_on_stop(model)

    def on_train_end(self, logs: Any = None) -> None:
        """Leave nothing behind in the history."""
        self.hooks.release_history(self.model)
