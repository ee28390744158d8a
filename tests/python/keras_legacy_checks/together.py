"""Ranks with unequal numbers of batches, and ranks that stop: the lane for Keras 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_legacy_checks import RANKS, assert_same_on_all_ranks, check, flat, small_model, state_of
from keras_legacy_checks.optimizers import KINDS, kinds

BATCH = 8


def rows(count: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 8)).astype("float32")
    return x, (x[:, :1] * 2 + 1).astype("float32")


@check
def one_rank_may_have_more_batches() -> None:
    import syrtos.keras as hvd

    batches = [4, 7]
    data = [rows(BATCH * count, rank) for rank, count in enumerate(batches)]
    for kind in KINDS:
        # One process: while both have batches the joined batch, then those of rank 1 alone.
        alone = small_model()
        alone.compile(kinds(kind).SGD(0.05, momentum=0.9), "mse")
        for _ in range(2):
            for step in range(max(batches)):
                part = slice(step * BATCH, (step + 1) * BATCH)
                here = [(x[part], y[part]) for x, y in data if len(x[part])]
                alone.train_on_batch(*(np.concatenate(z) for z in zip(*here, strict=True)))
        optimizer = hvd.DistributedOptimizer(kinds(kind).SGD(0.05, momentum=0.9))
        model = small_model()
        model.compile(optimizer, "mse")
        losses = model.fit(
            *data[hvd.rank()],
            batch_size=BATCH,
            epochs=2,
            shuffle=False,
            verbose=0,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
            ],
        ).history["loss"]
        np.testing.assert_allclose(flat(model.weights), flat(alone.weights), atol=1e-5)
        assert int(optimizer.iterations.numpy()) == 2 * max(batches)
        assert_same_on_all_ranks([*model.weights, *state_of(optimizer)])
        assert hvd.allgather_object(losses) == [losses] * RANKS


@check
def accumulating_ranks_may_have_unequal_numbers_of_batches() -> None:
    import syrtos.keras as hvd

    for batches in ([4, 5], [3, 6]):
        optimizer = hvd.DistributedOptimizer(kinds("new").SGD(0.05), backward_passes_per_step=2)
        model = small_model()
        model.compile(optimizer, "mse")
        model.fit(
            *rows(BATCH * batches[hvd.rank()], hvd.rank()),
            batch_size=BATCH,
            epochs=3,
            verbose=0,
            callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
        )
        assert int(optimizer.iterations.numpy()) == 3 * max(batches)
        assert_same_on_all_ranks(model.weights)


@check
def a_stop_on_one_rank_is_a_stop_on_all() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    class Stop(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.model.stop_training = True

    class StopInside(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                self.model.stop_training = True

    for stopper, epochs in ((Stop, 2), (StopInside, 1)):
        model = small_model()
        model.compile(hvd.DistributedOptimizer(kinds("new").SGD(0.05)), "mse")
        history = model.fit(
            *rows(BATCH * 4, hvd.rank()),
            batch_size=BATCH,
            epochs=5,
            verbose=0,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                *([stopper()] if hvd.rank() == 1 else []),
            ],
        )
        assert len(history.history["loss"]) == epochs
        assert "on_epoch_end" not in vars(history)
        assert_same_on_all_ranks(model.weights)


@check
def moving_statistics_are_averaged_after_each_epoch() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for averaged in (True, False):
        norm = tf.keras.layers.BatchNormalization(momentum=0.5)
        model = tf.keras.Sequential([tf.keras.Input((8,)), norm, tf.keras.layers.Dense(1)])
        model.compile(hvd.DistributedOptimizer(kinds("new").SGD(0.0)), "mse")
        data = [rows(BATCH, rank) for rank in range(RANKS)]
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(
            0, average_moving_statistics=averaged
        )
        model.fit(*data[hvd.rank()], batch_size=BATCH, verbose=0, callbacks=[callback])
        means = [0.5 * x.mean(axis=0) for x, _ in data]  # of 0 and the batch
        expected = np.mean(means, axis=0) if averaged else means[hvd.rank()]
        np.testing.assert_allclose(norm.moving_mean.numpy(), expected, atol=1e-6)


@check
def an_evaluation_in_the_middle_of_an_epoch_is_no_end_of_batches() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    x, y = rows(BATCH * 4, hvd.rank())
    results = []

    class Evaluate(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                results.append(self.model.evaluate(x, y, verbose=0))

    model = small_model()
    model.compile(hvd.DistributedOptimizer(kinds("new").SGD(0.05)), "mse")
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        Evaluate(),
    ]
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=callbacks)
    assert hvd.allgather_object(results) == [results] * RANKS
    assert int(model.optimizer.iterations.numpy()) == 4
    assert_same_on_all_ranks(model.weights)


@check
def values_for_the_arguments_of_fit() -> None:
    import pytest

    import syrtos.keras as hvd

    assert hvd.min_steps(5 + hvd.rank()) == 5
    assert hvd.verbose(2) == (2 if hvd.rank() == 0 else 0)
    with pytest.raises(ValueError, match="rank 1 has 0 batches"):
        hvd.min_steps(1 - hvd.rank())
