"""Training: 200 gradients in one request, tapes, sparse gradients, batch statistics, Keras."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from tensorflow_xla_checks import RANKS, check, compiled


def many_gradients(runs: int) -> None:
    """Reduce 200 gradients by one call in a program, each run with other delays and orders."""
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank, draw = hvd.rank(), random.Random(hvd.rank())
    layers = {f"layer{chr(97 + i // 26)}{chr(97 + i % 26)}": float(i) for i in range(200)}
    shapes = {name: (7, i % 5 + 1) for i, name in enumerate(layers)}
    variables = {
        name: tf.Variable(tf.fill(shapes[name], value), name=name) for name, value in layers.items()
    }

    def program() -> Any:
        names = list(variables)
        draw.shuffle(names)  # other on each rank: gradients are paired by the variables' names

        def step(x: Any) -> Any:
            listed = [variables[name] for name in names]
            with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
                loss = x * tf.add_n([tf.reduce_sum(variable * variable) for variable in listed])
            return dict(zip(names, tape.gradient(loss, listed), strict=True))

        return compiled(step)

    programs = [program() for _ in range(2)]
    for run in range(runs):
        time.sleep(draw.random() * 0.003)
        grads = programs[run % 2](tf.constant(1.0 + rank + run))
        scale = 2 * sum(1.0 + r + run for r in range(RANKS))
        for name, value in layers.items():
            got = grads[name].numpy()
            assert got.shape == shapes[name]
            assert (got == scale * value).all(), (run, name, scale * value, got)


@check
def two_hundred_gradients_in_one_call() -> None:
    many_gradients(100)


@check
def variables_get_the_roots_values_in_a_program() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    variables = [tf.Variable(tf.fill([i + 1], float(hvd.rank()))) for i in range(3)]
    variables.append(tf.Variable(hvd.rank() == 1))

    def start() -> None:
        hvd.broadcast_variables(variables, root_rank=1)

    compiled(start)()
    for i, variable in enumerate(variables[:3]):
        assert variable.numpy().tolist() == [1.0] * (i + 1)
    assert bool(variables[3].numpy()) is True


@check
def gradients_of_embeddings_are_gathered() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    table = tf.Variable(tf.zeros([5, 2]))
    indices = np.array([[0, 1, 1], [1, 3, 4]])

    def gradient(dense: bool, index: Any) -> Any:
        tape = hvd.DistributedGradientTape(tf.GradientTape(), sparse_as_dense=dense)
        with tape:
            loss = tf.reduce_sum(tf.gather(table, index)) * (1.0 + hvd.rank())
        return tf.convert_to_tensor(tape.gradient(loss, table))

    expected = np.zeros([5, 2])
    for rank in range(RANKS):
        np.add.at(expected, indices[rank], (1.0 + rank) / RANKS)
    for dense in (False, True):
        step = compiled(lambda index, dense=dense: gradient(dense, index))
        np.testing.assert_allclose(step(tf.constant(indices[hvd.rank()])), expected, rtol=1e-6)


@check
def batch_statistics_are_those_of_the_joined_batch() -> None:
    import keras
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    draw = np.random.default_rng(5)
    whole = draw.normal(2.0, 3.0, (6, 5)).astype("float32")
    factors = draw.normal(size=(6, 5)).astype("float32")

    def run(layer: Any, x: Any, factors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(y * factors)
        return y, tape.gradient(loss, x)

    plain, sync = keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
    plain.build((None, 5))
    sync.build((None, 5))
    expected = run(plain, tf.constant(whole), factors)
    mine = slice(0, 2) if hvd.rank() == 0 else slice(2, 6)
    step = compiled(lambda x, factors: run(sync, x, factors))
    results = step(tf.constant(whole[mine]), tf.constant(factors[mine]))
    for result, whole_result in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, whole_result[mine], atol=1e-5)
    np.testing.assert_allclose(sync.moving_mean.numpy(), plain.moving_mean.numpy(), atol=1e-5)


@check
def keras_trains_as_one_process_on_the_joined_batches() -> None:
    import keras

    import syrtos.tensorflow as hvd

    draw = np.random.default_rng(7)
    x = draw.normal(size=(48, 4)).astype("float32")
    y = x.sum(1, keepdims=True)

    def model(optimizer: Any, jit: bool) -> Any:
        keras.utils.set_random_seed(1)
        layers = [keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
        made = keras.Sequential(layers)
        made.compile(optimizer, "mse", jit_compile=jit)
        return made

    def fit(made: Any, x: Any, y: Any, rows: int) -> list[Any]:
        made.fit(x, y, batch_size=rows, epochs=3, shuffle=False, verbose=0)
        return list(made.get_weights())

    alone = fit(model(keras.optimizers.SGD(0.1, momentum=0.9), False), x, y, 8)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    shared = model(optimizer, True)
    mine = np.arange(48).reshape(6, RANKS, 4)[:, hvd.rank()].ravel()
    for own, expected in zip(fit(shared, x[mine], y[mine], 4), alone, strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-5)
    assert shared.jit_compile
