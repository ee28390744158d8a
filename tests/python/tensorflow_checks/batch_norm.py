"""``SyncBatchNormalization`` against plain batch normalization of the joined batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorflow_checks import RANKS, both_ways, check

#: Rows of each rank.
SPLITS = ((2, 2), (1, 3), (4, 0))


def outputs_and_gradients(layer: Any, x: Any, weights: Any, **call: Any) -> list[Any]:
    """The output for x, and the gradients of its weighted sum for x, gamma and beta."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True, **call)
        loss = tf.reduce_sum(y * weights)
    return [y, *tape.gradient(loss, [x, layer.gamma.value, layer.beta.value])]


@check
def sync_batch_normalization_equals_plain_on_the_joined_batch() -> None:
    import keras
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    random = np.random.default_rng(3)
    for shape, options in (
        ((4, 5), {}),
        ((4, 3, 3, 5), {"momentum": 0.7, "epsilon": 1e-2}),
        ((4, 5, 3, 3), {"axis": 1}),
    ):
        whole = random.normal(2.0, 3.0, shape).astype("float32")
        factors = random.normal(size=shape).astype("float32")
        for split in SPLITS:
            start = sum(split[: hvd.rank()])
            mine = slice(start, start + split[hvd.rank()])
            for way in both_ways(outputs_and_gradients):
                plain = keras.layers.BatchNormalization(**options)
                sync = hvd.SyncBatchNormalization(**options)
                plain.build(shape)
                sync.build(shape)
                expected = outputs_and_gradients(plain, tf.constant(whole), factors)
                y, of_x, of_gamma, of_beta = way(sync, tf.constant(whole[mine]), factors[mine])
                np.testing.assert_allclose(y, expected[0][mine], atol=1e-5)
                np.testing.assert_allclose(of_x, expected[1][mine], atol=1e-5)
                for own, joined in zip((of_gamma, of_beta), expected[2:], strict=True):
                    total = hvd.allreduce(own, op=hvd.Sum)
                    np.testing.assert_allclose(total, joined, atol=1e-4)
                for name in ("moving_mean", "moving_variance"):
                    np.testing.assert_allclose(
                        getattr(sync, name).numpy(), getattr(plain, name).numpy(), atol=1e-5
                    )
                still = sync(whole, training=False)
                np.testing.assert_allclose(still, plain(whole, training=False), atol=1e-5)


@check
def a_graph_of_version_1_has_the_joined_statistics_too() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd
    from tensorflow_checks.sessions import session_of_new_graph

    whole = np.random.default_rng(7).normal(1.0, 2.0, [6, 3])
    factors = np.arange(18.0).reshape(6, 3) - 7.0
    mine = slice(0, 2) if hvd.rank() == 0 else slice(2, 6)
    centred = whole - whole.mean(0)
    scale = 1.0 / np.sqrt(whole.var(0) + 1e-3)
    normal = centred * scale
    of_x = scale * (factors - factors.mean(0) - normal * (factors * normal).mean(0))
    with session_of_new_graph() as session:
        x = tf.compat.v1.placeholder(tf.float64, [None, 3])
        layer = hvd.SyncBatchNormalization(dtype="float64")
        y = layer(x, training=True)
        grad = tf.gradients(tf.reduce_sum(y * factors[mine]), x)[0]
        session.run(tf.compat.v1.global_variables_initializer())
        output, gradient = session.run([y, grad], {x: whole[mine]})
    np.testing.assert_allclose(output, normal[mine], atol=1e-12)
    np.testing.assert_allclose(gradient, of_x[mine], atol=1e-12)


@check
def masked_steps_do_not_count() -> None:
    import keras
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    random = np.random.default_rng(4)
    whole = random.normal(size=(4, 6, 2)).astype("float32")
    lengths = [6, 1, 3, 5]
    mask = np.arange(6) < np.array(lengths)[:, None]
    whole[~mask] = np.nan  # must not reach the statistics
    mine = slice(0, 2) if hvd.rank() == 0 else slice(2, 4)
    sync = hvd.SyncBatchNormalization()
    sync(tf.constant(whole[mine]), training=True, mask=tf.constant(mask[mine]))
    used = whole[mask].astype("float64")
    np.testing.assert_allclose(sync.moving_mean.numpy(), 0.01 * used.mean(0), atol=1e-6)
    expected = 0.99 + 0.01 * used.var(0)
    np.testing.assert_allclose(sync.moving_variance.numpy(), expected, atol=1e-6)
    assert keras.layers.BatchNormalization in type(sync).__mro__


@check
def large_means_leave_the_variance_right() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    whole = 1e4 + np.random.default_rng(5).normal(size=(1000, 1))
    sync = hvd.SyncBatchNormalization(momentum=0.0)
    half = 1000 // RANKS
    sync(tf.constant(whole[hvd.rank() * half :][:half], tf.float32), training=True)
    expected = whole.astype("float32").astype("float64").var()
    np.testing.assert_allclose(sync.moving_variance.numpy(), [expected], rtol=1e-5)


@check
def a_model_with_it_trains_saves_and_loads() -> None:
    import tempfile
    from pathlib import Path

    import keras

    import syrtos.keras
    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    random = np.random.default_rng(6)
    x, y = random.normal(size=(16, 3)), random.normal(size=(16, 1))

    def model_of(layer: Any) -> Any:
        model = keras.Sequential(
            [keras.layers.Dense(4, kernel_initializer="ones"), layer, keras.layers.Dense(1)]
        )
        model.build([None, 3])
        for i, weight in enumerate(model.layers[2].weights):
            weight.assign(np.full(weight.shape, 0.25 + i))
        return model

    optimizer = syrtos.keras.DistributedOptimizer(keras.optimizers.SGD(0.1))
    sync = model_of(hvd.SyncBatchNormalization(name="norm"))
    sync.compile(optimizer, "mse")
    mine = slice(rank * 4, None)
    for step in range(0, 16, 8):
        batch = slice(step, step + 8)
        sync.train_on_batch(x[batch][mine][:4], y[batch][mine][:4])
    plain = model_of(keras.layers.BatchNormalization())
    plain.compile(keras.optimizers.SGD(0.1), "mse")
    for step in range(0, 16, 8):
        plain.train_on_batch(x[step : step + 8], y[step : step + 8])
    for a, b in zip(sync.weights, plain.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5, err_msg=a.path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.keras"
        sync.save(file)
        loaded = keras.saving.load_model(file)
        np.testing.assert_allclose(loaded(x), sync(x), atol=1e-6)
        assert isinstance(loaded.layers[1], hvd.SyncBatchNormalization)


@check
def sync_batch_normalization_refuses_what_it_cannot_do() -> None:
    import syrtos.tensorflow as hvd

    with pytest.raises(ValueError, match="fused=True"):
        hvd.SyncBatchNormalization(fused=True)
    with pytest.raises(ValueError, match="synchronized=True"):
        hvd.SyncBatchNormalization(synchronized=True)
