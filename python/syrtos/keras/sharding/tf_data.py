"""Shares of a ``tf.data.Dataset``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from syrtos.errors import InvalidRequestError
from syrtos.keras.sharding._plan import Plan

__all__ = ["shard_dataset"]


def shard_dataset(dataset: Any, plan: Plan) -> Any:
    """Return this rank's elements.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Shuffle it alike on all ranks (with a seed), or only after it has been divided.
    plan : Plan
        Whose share it is.

    Returns
    -------
    tf.data.Dataset

    Raises
    ------
    InvalidRequestError
        "pad" or "drop", and the number of elements is unknown; or there are too few.
    """
    # Another division by tf.data, of which Keras' users see nothing, would come on top.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    count = int(dataset.cardinality())
    if count == tf.data.INFINITE_CARDINALITY:
        return dataset.shard(plan.size, plan.rank).with_options(options)
    if count == tf.data.UNKNOWN_CARDINALITY:
        if plan.lengths != "uneven":
            raise InvalidRequestError(
                f"shard: lengths={plan.lengths!r} needs to know how many elements the dataset has. "
                "Tell it with dataset.apply(tf.data.experimental.assert_cardinality(n)), or use "
                "lengths='uneven'."
            )
        return dataset.shard(plan.size, plan.rank).with_options(options)
    share = plan.length(count, "elements")
    if plan.lengths == "pad":
        dataset = dataset.repeat()
    return dataset.shard(plan.size, plan.rank).take(share).with_options(options)
