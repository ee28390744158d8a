"""Each rank's share of the data, for ``fit`` and ``evaluate``."""

from __future__ import annotations

import sys
from typing import Any

import keras

from syrtos import _session
from syrtos.keras.sharding import arrays
from syrtos.keras.sharding._plan import Plan
from syrtos.keras.sharding.py_dataset import ShardOfPyDataset

__all__ = ["shard"]


def shard(
    data: Any,
    *,
    lengths: str = "uneven",
    rank: int | None = None,
    size: int | None = None,
    seed: int = 0,
) -> Any:
    """Return this rank's share of some data: every `size`-th item, beginning with the `rank`-th.

    Parameters
    ----------
    data : arrays, tf.data.Dataset, keras.utils.PyDataset or torch DataLoader
        The same on every rank. Arrays, also nested in tuples, lists and dicts, are divided by their
        rows, a data set by its elements (which are batches if it is batched), a ``PyDataset`` by
        its batches, a ``DataLoader`` by the items of its data set.
    lengths : str
        - "uneven": every item on one rank. Ranks may differ by one item; with the callbacks of
          Syrtos, ``fit`` and ``evaluate`` count each item once all the same.
        - "pad": the first items are repeated until all ranks have equally many.
        - "drop": the last items are left out so that all ranks have equally many.
    rank, size : int, optional
        Of the world by default.
    seed : int
        For a ``DataLoader`` that shuffles: the order of all items is drawn anew in each epoch, the
        same on all ranks, and then divided.

    Returns
    -------
    Like `data`

    Raises
    ------
    InvalidRequestError
        An argument is impossible, arrays have different numbers of rows, there are too few items
        for all ranks, or a data set has no known length where one is needed; also a ``ValueError``.
    TypeError
        The data is of another kind.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.keras as hvd
    >>> hvd.shard({"x": np.arange(5)}, lengths="drop", rank=1, size=2)
    {'x': array([1, 3])}
    """
    topology = _session.topology() if rank is None or size is None else None
    plan = Plan(
        rank=topology.rank if rank is None and topology else rank or 0,
        size=topology.size if size is None and topology else size or 1,
        lengths=lengths,
    )
    if isinstance(data, keras.utils.PyDataset):
        return ShardOfPyDataset(data, plan)
    # What a user has made an object of has been imported.
    tensorflow, torch_data = sys.modules.get("tensorflow"), sys.modules.get("torch.utils.data")
    if tensorflow is not None and isinstance(data, tensorflow.data.Dataset):
        from syrtos.keras.sharding.tf_data import shard_dataset

        return shard_dataset(data, plan)
    if torch_data is not None and isinstance(data, torch_data.DataLoader):
        from syrtos.keras.sharding.torch_loader import shard_loader

        return shard_loader(data, plan, seed)
    return arrays.shard_arrays(data, plan)
