"""The callback that keeps the best model."""

from __future__ import annotations

import os
from typing import Any

import keras

from syrtos import _session
from syrtos.errors import InvalidRequestError

__all__ = ["BestModelCheckpoint"]


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
        Ends in ``.keras``, or in ``.weights.h5`` with `save_weights_only`. It can also be set
        later, as the attribute of this name, before training begins.

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
        # Keras wants a path at once; an ending shows that this one is never used.
        unset = "unset.weights.h5" if save_weights_only else "unset.keras"
        super().__init__(
            filepath=unset if filepath is None else os.fspath(filepath),
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
        if not self._writes():
            self.verbose = 0
        super().on_train_begin(logs)

    @staticmethod
    def _writes() -> bool:
        return not _session.is_started() or _session.topology().rank == 0

    def _should_save_model(self, epoch: Any, batch: Any, logs: Any, filepath: str) -> bool:
        # Called on all ranks, so that `best` is the same on all.
        is_best = bool(super()._should_save_model(epoch, batch, logs, filepath))
        return is_best and self._writes()
