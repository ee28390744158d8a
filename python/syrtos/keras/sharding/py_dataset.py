"""Shares of a ``keras.utils.PyDataset``."""

from __future__ import annotations

from typing import Any

import keras

from syrtos.errors import InvalidRequestError
from syrtos.keras.sharding._plan import Plan

__all__ = ["ShardOfPyDataset"]


class ShardOfPyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of this rank, out of another ``PyDataset``.

    Parameters
    ----------
    dataset : keras.utils.PyDataset
        Where the batches come from, with a known number of batches. If it shuffles after an epoch,
        it must do so alike on all ranks.
    plan : Plan
        Whose share it is.

    Raises
    ------
    InvalidRequestError
        The number of batches is unknown, or there are too few.
    """

    def __init__(self, dataset: Any, plan: Plan) -> None:
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self._dataset = dataset
        self._plan = plan
        self._batches = self._find_batches()

    def _find_batches(self) -> list[int]:
        count = self._dataset.num_batches
        if count is None:
            raise InvalidRequestError(
                f"shard: the number of batches of {type(self._dataset).__name__} is unknown. Give "
                "it a __len__."
            )
        return self._plan.items(int(count), "batches")

    @property
    def num_batches(self) -> int:
        """How many batches this rank has."""
        return len(self._batches)

    def __len__(self) -> int:
        """Return how many batches this rank has."""
        return len(self._batches)

    def __getitem__(self, index: int) -> Any:
        """Return one of this rank's batches."""
        return self._dataset[self._batches[index]]

    def on_epoch_begin(self) -> None:
        """Pass it on."""
        if hasattr(self._dataset, "on_epoch_begin"):
            self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Pass it on; the number of batches may have changed."""
        self._dataset.on_epoch_end()
        self._batches = self._find_batches()
