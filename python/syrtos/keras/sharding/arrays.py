"""Shares of arrays and tensors, also nested ones."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from syrtos.errors import InvalidRequestError
from syrtos.keras.sharding._plan import Plan

__all__ = ["shard_arrays"]


def _rows(array: Any) -> int:
    shape = getattr(array, "shape", None)
    if shape is None or len(shape) == 0:
        raise TypeError(
            f"shard: a {type(array).__name__} has no rows that could be divided. Give arrays or "
            "tensors (also nested in tuples, lists and dicts), a tf.data.Dataset, a "
            "keras.utils.PyDataset or a torch DataLoader."
        )
    return int(shape[0])


def shard_arrays(data: Any, plan: Plan) -> Any:
    """Return this rank's rows of each array; None stays None.

    Parameters
    ----------
    data : nested arrays, tensors or pandas objects
        All with the same number of rows.
    plan : Plan
        Whose share it is.
    """
    counts = {_rows(one) for one in keras.tree.flatten(data) if one is not None}
    if not counts:
        raise TypeError("shard: there is no array in the data.")
    if len(counts) > 1:
        raise InvalidRequestError(
            f"shard: the arrays have different numbers of rows: {sorted(counts)}."
        )
    (count,) = counts
    rows = np.array(plan.items(count, "rows"))

    def share(array: Any) -> Any:
        if array is None:
            return None
        if hasattr(array, "iloc"):  # pandas
            return array.iloc[rows]
        if keras.ops.is_tensor(array):
            return keras.ops.take(array, rows, axis=0)
        return array[rows]

    return keras.tree.map_structure(share, data)
