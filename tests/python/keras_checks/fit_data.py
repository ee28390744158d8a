"""Data that is divided among the ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_checks import RANKS, assert_same_on_all_ranks
from keras_checks.fit_helpers import compiled, data_of, fit_check, together


@fit_check
def arrays_are_divided_by_rows() -> None:
    import keras

    import syrtos.keras as hvd

    rank = hvd.rank()
    x = np.arange(14).reshape(7, 2)
    nest = {"x": x, "more": (keras.ops.convert_to_tensor(x[:, 0]), None)}
    for lengths, rows in (
        ("uneven", [[0, 2, 4, 6], [1, 3, 5]]),
        ("drop", [[0, 2, 4], [1, 3, 5]]),
        ("pad", [[0, 2, 4, 6], [1, 3, 5, 0]]),
    ):
        share = hvd.shard(nest, lengths=lengths)
        np.testing.assert_array_equal(share["x"], x[rows[rank]])
        first, nothing = share["more"]
        assert keras.ops.is_tensor(first)
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(first), x[rows[rank], 0])
        assert nothing is None
    for bad, words in (
        ({"data": (x, x[:3])}, "different numbers of rows: \\[3, 7\\]"),
        ({"data": x[:1]}, "1 rows cannot be divided among 2 ranks"),
        ({"data": x[:0], "lengths": "pad"}, "0 rows"),
        ({"data": x, "lengths": "even"}, "lengths='even' is none of"),
        ({"data": x, "rank": 2, "size": 2}, "rank=2"),
    ):
        with pytest.raises(ValueError, match=words):
            hvd.shard(**bad)
    for bad in ("text", 3, []):
        with pytest.raises(TypeError, match="shard"):
            hvd.shard(bad)


class Batches:
    """What `PyDataset` needs; the class itself is made where Keras is imported."""

    def __init__(self, rows: int, batch: int, **options: Any) -> None:
        super().__init__(**options)
        self.data, self.batch, self.ends = data_of(3, rows), batch, 0

    def __len__(self) -> int:
        return -(-len(self.data[0]) // self.batch)

    def __getitem__(self, index: int) -> Any:
        place = slice(index * self.batch, (index + 1) * self.batch)
        return tuple(part[place] for part in self.data)

    def on_epoch_end(self) -> None:
        self.ends += 1


@fit_check
def a_py_dataset_is_divided_by_batches() -> None:
    import keras

    import syrtos.keras as hvd

    kind = type("Dataset", (Batches, keras.utils.PyDataset), {})
    whole = kind(28, 4, workers=2)
    for lengths, counts in (("uneven", (4, 3)), ("drop", (3, 3)), ("pad", (4, 4))):
        share = hvd.shard(whole, lengths=lengths)
        assert len(share) == share.num_batches == counts[hvd.rank()]
        assert share.workers == 2
        for i in range(len(share)):
            np.testing.assert_array_equal(share[i][0], whole[(hvd.rank() + i * RANKS) % 7][0])
    model = compiled(keras.optimizers.SGD(0.0))
    share = hvd.shard(kind(28, 4))
    history = model.fit(share, verbose=0, callbacks=together()).history
    x, y = whole.data
    error = keras.ops.convert_to_numpy(model(x)) - y
    np.testing.assert_allclose(history["loss"], np.mean(error**2), rtol=1e-5)
    assert int(model.optimizer.iterations) == 4
    plain = kind(28, 4)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(plain, verbose=0)
    assert share._dataset.ends == plain.ends > 0


@fit_check
def a_tf_dataset_is_divided_by_elements() -> None:
    import keras

    import syrtos.keras as hvd

    if keras.backend.backend() != "tensorflow":
        return  # it would be imported for this only
    import tensorflow as tf

    whole = tf.data.Dataset.range(7)
    for lengths, items in (
        ("uneven", [[0, 2, 4, 6], [1, 3, 5]]),
        ("drop", [[0, 2, 4], [1, 3, 5]]),
        ("pad", [[0, 2, 4, 6], [1, 3, 5, 0]]),
    ):
        share = hvd.shard(whole, lengths=lengths)
        assert [int(one) for one in share] == items[hvd.rank()]
        assert int(share.cardinality()) == len(items[hvd.rank()])
    unknown = whole.filter(lambda one: one >= 0)
    assert [int(one) for one in hvd.shard(unknown)] == list(range(7))[hvd.rank() :: RANKS]
    with pytest.raises(ValueError, match="assert_cardinality"):
        hvd.shard(unknown, lengths="drop")
    endless = hvd.shard(whole.repeat(), lengths="drop").take(5)
    assert [int(one) for one in endless] == [(hvd.rank() + i * RANKS) % 7 for i in range(5)]

    x, y = data_of(3, 28)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    model = compiled(keras.optimizers.SGD(0.0), steps_per_execution=2)
    history = model.fit(hvd.shard(batches), verbose=0, callbacks=together()).history
    error = keras.ops.convert_to_numpy(model(x)) - y
    np.testing.assert_allclose(history["loss"], np.mean(error**2), rtol=1e-5)
    assert int(model.optimizer.iterations) == 4


@fit_check
def a_data_loader_is_divided_by_items() -> None:
    import keras

    import syrtos.keras as hvd

    if keras.backend.backend() != "torch":
        return  # it would be imported for this only
    import torch
    from torch.utils.data import (
        DataLoader,
        DistributedSampler,
        TensorDataset,
        WeightedRandomSampler,
    )

    def items(loader: Any) -> list[int]:
        return [int(one) for batch in loader for one in batch[0]]

    whole = TensorDataset(torch.arange(7))
    for lengths, drop in (("pad", False), ("drop", True)):
        share = hvd.shard(DataLoader(whole, batch_size=2), lengths=lengths)
        theirs = DistributedSampler(whole, RANKS, hvd.rank(), shuffle=False, drop_last=drop)
        assert items(share) == list(theirs)
        assert len(share) == 2
    uneven = hvd.shard(DataLoader(whole, batch_size=2, drop_last=True))
    assert items(uneven) == [[0, 2, 4, 6], [1, 3]][hvd.rank()]

    shuffled = hvd.shard(DataLoader(whole, batch_size=3, shuffle=True), seed=5)
    epochs = [items(shuffled), items(shuffled)]
    for epoch, mine in enumerate(epochs):
        order = torch.randperm(7, generator=torch.Generator().manual_seed(5 + epoch)).tolist()
        assert mine == order[hvd.rank() :: RANKS]
    assert epochs[0] != epochs[1]
    shuffled.sampler.set_epoch(0)
    assert items(shuffled) == epochs[0]

    for bad, words in (
        (DataLoader(whole, sampler=WeightedRandomSampler([1.0] * 7, 7)), "WeightedRandomSampler"),
        (DataLoader(whole, sampler=torch.utils.data.RandomSampler(whole, True)), "replacement"),
    ):
        with pytest.raises(ValueError, match=words):
            hvd.shard(bad)

    x, y = data_of(3, 26)
    loader = DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=4)
    model = compiled(keras.optimizers.SGD(0.01), seed=1 + hvd.rank())
    frozen = compiled(keras.optimizers.SGD(0.0))
    model.fit(hvd.shard(loader), verbose=0, epochs=2, callbacks=together())
    assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])
    history = frozen.fit(hvd.shard(loader), verbose=0, callbacks=together()).history
    error = keras.ops.convert_to_numpy(frozen(x)) - y
    np.testing.assert_allclose(history["loss"], np.mean(error**2), rtol=1e-5)
