"""Keras 2 in graphs of ``tf.compat.v1``: `fit` in a session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_legacy_checks import RANKS, check, data_of, small_model


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """A graph and a session for Keras."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as own:
        tf.compat.v1.keras.backend.set_session(own)
        yield own


@check
def a_model_is_trained_in_a_session() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for passes in (1, 2):
        with session():
            tf.keras.backend.set_floatx("float32")
            model = small_model(seed=1 + hvd.rank())
            optimizer = hvd.DistributedOptimizer(
                tf.keras.optimizers.legacy.SGD(0.0),
                backward_passes_per_step=passes,
                average_aggregated_gradients=True,
            )
            model.compile(optimizer, "mse")
            start = model.get_weights()
            callbacks = [
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
            ]
            history = model.fit(
                *data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=callbacks
            ).history
            of_ranks = hvd.allgather_object((start, history["loss"]))
            for ours, roots in zip(model.get_weights(), of_ranks[0][0], strict=True):
                np.testing.assert_array_equal(ours, roots)
            assert of_ranks[0][1] == of_ranks[1][1]

            tf.keras.backend.set_value(optimizer.learning_rate, 0.1)
            before = model.get_weights()
            model.fit(*data_of(hvd.rank()), batch_size=32 // passes, shuffle=False, verbose=0)
            after = model.get_weights()
        expected = one_step(before)
        for ours, reference in zip(after, expected, strict=True):
            np.testing.assert_allclose(ours, reference, atol=1e-6)


def one_step(weights: list[Any]) -> list[Any]:
    """The weights after plain Keras has made one step on the rows of all ranks."""
    import tensorflow as tf

    x, y = (np.concatenate(parts) for parts in zip(*map(data_of, range(RANKS)), strict=True))
    model = small_model()
    model.set_weights(weights)
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), "mse")
    model.fit(x, y, batch_size=len(x), verbose=0)
    return list(model.get_weights())


@check
def helpers_return_values_in_a_session() -> None:
    import syrtos.keras as hvd

    with session():
        assert float(hvd.allreduce(1.0 + hvd.rank())) == 1.5
        assert hvd.allgather(np.full(hvd.rank() + 1, hvd.rank())).tolist() == [0, 1, 1]
