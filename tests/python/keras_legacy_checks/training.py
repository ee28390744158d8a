"""Callbacks, metrics and helpers of the lane for Keras 2."""

from __future__ import annotations

import io
import sys
import tempfile
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest

from keras_legacy_checks import (
    RANKS,
    assert_same_on_all_ranks,
    check,
    data_of,
    flat,
    small_model,
    state_of,
)
from keras_legacy_checks.optimizers import KINDS, kinds


@check
def keras_3_is_left_alone_and_the_names_are_in_all_places() -> None:
    import syrtos.keras
    import syrtos.keras.callbacks
    import syrtos.tensorflow.keras
    import syrtos.tensorflow.keras.callbacks

    assert "keras" not in sys.modules
    for name in syrtos.keras.__all__:
        assert getattr(syrtos.tensorflow.keras, name) is getattr(syrtos.keras, name)
    assert syrtos.keras.callbacks is syrtos.tensorflow.keras.callbacks
    assert sys.modules["syrtos.keras.callbacks"] is syrtos.keras.callbacks
    assert sys.modules["syrtos.tensorflow.keras.callbacks"] is syrtos.keras.callbacks


@check
def training_begins_from_the_roots_state() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for kind in KINDS:
        for root in range(RANKS):
            model = small_model(seed=1 + hvd.rank())
            start = flat(model.weights)
            optimizer = hvd.DistributedOptimizer(kinds(kind).Adam(0.0))
            scaled = tf.keras.mixed_precision.LossScaleOptimizer(
                optimizer, initial_scale=2.0 ** (4 + hvd.rank())
            )
            model.compile(scaled, "mse")
            callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root)
            model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback])
            np.testing.assert_array_equal(flat(model.weights), hvd.allgather_object(start)[root])
            assert_same_on_all_ranks([*model.weights, *state_of(optimizer)])
            assert float(scaled.loss_scale.numpy()) == 2.0 ** (4 + root)


@check
def a_model_without_input_shape_is_broadcast_after_the_first_batch() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for kind in KINDS:
        tf.keras.utils.set_random_seed(1 + hvd.rank())
        model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
        optimizer = hvd.DistributedOptimizer(kinds(kind).Adam(0.01))
        model.compile(optimizer, "mse")
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback])
        assert callback.broadcast_done
        assert_same_on_all_ranks([*model.weights, *state_of(optimizer)])


@check
def local_variables_are_not_broadcast() -> None:
    import syrtos.keras as hvd

    model = small_model(seed=1 + hvd.rank())
    before = flat(model.weights[:2])
    model.compile(hvd.DistributedOptimizer(kinds("new").SGD(0.0)), "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=model.weights[:1])
    callback.register_local_var(model.weights[1])
    model.fit(*data_of(0), batch_size=32, verbose=0, callbacks=[callback])
    np.testing.assert_array_equal(flat(model.weights[:2]), before)
    assert_same_on_all_ranks(model.weights[2:])


@check
def a_backup_that_the_root_alone_has_is_continued_by_all() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    class Crash(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise RuntimeError("crash")

    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(2):
            model = small_model(seed=10 * attempt + hvd.rank())
            model.compile(hvd.DistributedOptimizer(kinds("new").Adam(0.01)), "mse")
            epochs: list[int] = []
            callbacks = [
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                tf.keras.callbacks.LambdaCallback(
                    on_epoch_begin=lambda e, _, epochs=epochs: epochs.append(e)
                ),
            ]
            if hvd.rank() == 0:
                callbacks.insert(0, tf.keras.callbacks.BackupAndRestore(folder))
            if attempt == 0:
                with pytest.raises(RuntimeError, match="crash"):
                    model.fit(
                        *data_of(hvd.rank()), epochs=4, verbose=0, callbacks=[*callbacks, Crash()]
                    )
                crashed = flat(model.weights)
            else:
                seen: list[Any] = []
                first = tf.keras.callbacks.LambdaCallback(
                    on_epoch_begin=lambda e, _, model=model, s=seen: s.append(flat(model.weights))
                )
                model.fit(*data_of(hvd.rank()), epochs=4, verbose=0, callbacks=[*callbacks, first])
                assert epochs == [2, 3]
                np.testing.assert_array_equal(seen[0], crashed)
                assert_same_on_all_ranks([*model.weights, *state_of(model.optimizer)])


@check
def an_optimizer_wrapped_after_training_reduces() -> None:
    import syrtos.keras as hvd

    for kind in KINDS:
        model = small_model()
        model.compile(kinds(kind).SGD(0.05), "mse")
        model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0)
        hvd.DistributedOptimizer(model.optimizer)
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback])
        assert_same_on_all_ranks(model.weights)


@check
def metrics_are_exact_with_uneven_samples() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    rng = np.random.default_rng(5)
    x = rng.normal(size=(320, 8)).astype("float32")
    y = (x[:, :1] * 2 + np.arange(320)[:, None] / 50).astype("float32")
    train = [slice(0, 192), slice(192, 320)][hvd.rank()]
    validation = [slice(0, 100), slice(100, 320)][hvd.rank()]
    model = small_model()
    model.compile(
        hvd.DistributedOptimizer(kinds("new").SGD(0.0)),
        "mse",
        metrics=["mae", tf.keras.metrics.RootMeanSquaredError(name="rmse")],
    )
    seen: list[dict[str, float]] = []
    history = model.fit(
        x[train],
        y[train],
        batch_size=[24, 16][hvd.rank()],
        shuffle=False,
        verbose=0,
        validation_data=(x[validation], y[validation]),
        callbacks=[
            tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(dict(logs))),
            hvd.callbacks.MetricAverageCallback(),
        ],
    )
    error = model.predict(x, verbose=0) - y
    expected = {
        "loss": np.mean(error**2),
        "mae": np.mean(np.abs(error)),
        "rmse": np.sqrt(np.mean(error**2)),
    }
    for logs in (seen[0], {name: values[0] for name, values in history.history.items()}):
        for name, value in expected.items():
            np.testing.assert_allclose(logs[name], value, rtol=1e-5)
            np.testing.assert_allclose(logs[f"val_{name}"], value, rtol=1e-5)
    with hvd.local():
        if hvd.rank() == 0:
            own = model.evaluate(x[validation], y[validation], verbose=0, return_dict=True)
            np.testing.assert_allclose(own["loss"], np.mean(error[:100] ** 2), rtol=1e-5)


@check
def metrics_of_other_kinds_are_combined_as_they_say() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    class Largest(tf.keras.metrics.Metric):
        syrtos_op = "max"

        def __init__(self) -> None:
            super().__init__(name="largest")
            self.value = self.add_weight("value", initializer="zeros")

        def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.value.assign(tf.maximum(self.value, tf.reduce_max(y)))

        def result(self) -> Any:
            return self.value

    model = small_model()
    model.compile("sgd", "mse", metrics=[Largest()])
    assert hvd.attach(model) is model
    assert hvd.attach(model) is model  # a second time does nothing
    y = np.full((4, 1), 10.0 + hvd.rank(), "float32")
    result = model.evaluate(np.ones((4, 8), "float32"), y, verbose=0, return_dict=True)
    assert result["largest"] == 10.0 + RANKS - 1

    class Own(tf.keras.Sequential):
        def test_step(self, data: Any) -> Any:
            return {"own": tf.constant(3.0 + hvd.rank())}

    own = Own(small_model().layers)
    own.compile("sgd", "mse")
    result = hvd.attach(own).evaluate(np.ones((4, 8)), y, verbose=0, return_dict=True)
    assert result == {"own": 3.5}


@check
def early_stopping_and_plateau_agree_on_all_ranks() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    model = small_model()
    optimizer = hvd.DistributedOptimizer(kinds("new").Adam(0.05))
    model.compile(optimizer, "mse")
    x, y = data_of(hvd.rank(), 64)
    noisy = y + np.random.default_rng(9).normal(size=y.shape).astype("float32") * 3 * hvd.rank()
    history = model.fit(
        x,
        y,
        batch_size=16,
        epochs=12,
        verbose=0,
        validation_data=(x, noisy),
        callbacks=[
            tf.keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, min_delta=0.02),
            tf.keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, min_delta=0.05),
            hvd.callbacks.MetricAverageCallback(),  # its place in the list does not matter
        ],
    )
    mine = (len(history.history["loss"]), float(optimizer.learning_rate.numpy()), history.history)
    assert all(other == mine for other in hvd.allgather_object(mine))


@check
def the_learning_rate_warms_up_batch_by_batch() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    schedule = hvd.callbacks.LearningRateScheduleCallback
    warmup = hvd.callbacks.LearningRateWarmupCallback
    warm = [0.8 / RANKS * (1 + (RANKS - 1) * (i + 1) / 8) for i in range(8)]
    for kind in KINDS:

        def rates(callback: Any, epochs: int, initial_epoch: int = 0, kind: str = kind) -> Any:
            used = []
            model = small_model()
            optimizer = hvd.DistributedOptimizer(kinds(kind).SGD(0.8, momentum=0.9))
            model.compile(optimizer, "mse")
            record = tf.keras.callbacks.LambdaCallback(
                on_batch_end=lambda batch, logs: used.append(float(optimizer.learning_rate.numpy()))
            )
            with redirect_stdout(io.StringIO()) as text:
                history = model.fit(
                    *data_of(hvd.rank()),
                    batch_size=8,  # 4 batches
                    epochs=epochs,
                    initial_epoch=initial_epoch,
                    verbose=0,
                    callbacks=[callback, record],
                )
            np.testing.assert_allclose(float(optimizer.momentum), 0.9, rtol=1e-6)
            return used, history.history["lr"], text.getvalue()

        used, logged, text = rates(warmup(0.8, warmup_epochs=2, verbose=1), 3)
        np.testing.assert_allclose(used, [*warm, *[0.8] * 4], rtol=1e-6)
        assert used[7] == np.float32(0.8)
        np.testing.assert_allclose(logged, [warm[3], 0.8, 0.8], rtol=1e-6)
        assert text.count("has reached 0.8") == (1 if hvd.rank() == 0 else 0)
        used, _, _ = rates(warmup(0.8, warmup_epochs=2), 3, 2)
        np.testing.assert_allclose(used, [0.8] * 4, rtol=1e-6)
        used, _, _ = rates(schedule(0.8, 0.5, start_epoch=1, end_epoch=2), 3)
        np.testing.assert_allclose(used, [0.8] * 4 + [0.4] * 8, rtol=1e-6)
        used, _, _ = rates(schedule(0.8, lambda epoch: 1 / (1 + epoch), staircase=False), 2)
        np.testing.assert_allclose(used, [0.8 / (1 + i / 4) for i in range(8)], rtol=1e-6)

        model = small_model()
        falling = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        model.compile(kinds(kind).SGD(falling), "mse")
        with pytest.raises(ValueError, match="schedule already"):
            model.fit(*data_of(0), verbose=0, callbacks=[schedule(0.1, 2.0)])


@check
def momentum_is_corrected_when_the_rate_changes() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    # A constant gradient g: v = m v - r g, w += v. In batch 1 the rate falls to a tenth, so
    # momentum is m / 10 there.
    weight = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = tf.keras.Sequential([tf.keras.Input((1,)), weight])
    optimizer = hvd.DistributedOptimizer(kinds("legacy").SGD(1.0, momentum=0.5))
    model.compile(optimizer, lambda y, prediction: tf.reduce_mean(prediction))
    fall = hvd.callbacks.LearningRateScheduleCallback(
        1.0, lambda epoch: 1.0 if epoch < 0.5 else 0.1, staircase=False
    )
    ones = np.ones((4, 1), "float32")
    model.fit(ones, ones, batch_size=1, shuffle=False, verbose=0, callbacks=[fall])
    v, w = 0.0, 0.0
    for rate, momentum in ((1.0, 0.5), (1.0, 0.5), (0.1, 0.05), (0.1, 0.5)):
        v = momentum * v - rate
        w += v
    np.testing.assert_allclose(weight.kernel.numpy(), [[w]], rtol=1e-5)


@check
def helpers_on_values() -> None:
    import syrtos.keras as hvd

    rank = hvd.rank()
    assert np.asarray(hvd.allreduce(np.array([1.0 + rank]))) == [1.5]
    assert float(hvd.allreduce(1.0 + rank, op=hvd.Sum)) == 3.0
    with pytest.raises(ValueError, match="twice"):
        hvd.allreduce(1.0, average=True, op=hvd.Sum)
    assert np.asarray(hvd.allgather(np.full(rank + 1, rank))).tolist() == [0, 1, 1]
    assert np.asarray(hvd.broadcast(np.array([rank]), 1)) == [1]
    assert np.asarray(hvd.reducescatter(np.array([2.0, 4.0]), op=hvd.Sum)) == [4.0 * (rank + 1)]
    with pytest.raises(RuntimeError, match="BroadcastGlobalVariablesCallback"):
        hvd.broadcast_global_variables(0)


@check
def batch_statistics_are_those_of_the_joined_batch() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rng = np.random.default_rng(3)
    for shape, options, rows in (
        ((4, 5), {}, (1, 3)),
        ((4, 3, 3, 5), {"momentum": 0.7}, (4, 0)),
        ((4, 5, 3, 3), {"axis": 1}, (2, 2)),
    ):
        whole = tf.constant(rng.normal(2.0, 3.0, shape).astype("float32"))
        weights = tf.constant(rng.normal(size=shape).astype("float32"))
        plain = tf.keras.layers.BatchNormalization(fused=False, **options)
        sync = hvd.SyncBatchNormalization(fused=False, **options)
        assert isinstance(sync, tf.keras.layers.BatchNormalization)
        start = sum(rows[: hvd.rank()])
        mine = slice(start, start + rows[hvd.rank()])
        results = []
        for layer, part in ((plain, slice(None)), (sync, mine)):
            layer.build(shape)
            with tf.GradientTape() as tape:
                x = tf.identity(whole[part])
                tape.watch(x)
                y = layer(x, training=True)
                loss = tf.reduce_sum(y * weights[part])
            results.append([y, *tape.gradient(loss, [x, layer.gamma, layer.beta])])
        (y, of_x, *joined), (own_y, own_x, *own) = results
        np.testing.assert_allclose(own_y, y[mine], atol=1e-5)
        np.testing.assert_allclose(own_x, of_x[mine], atol=1e-5)
        for ours, reference in zip(own, joined, strict=True):
            np.testing.assert_allclose(hvd.allreduce(ours, op=hvd.Sum), reference, atol=1e-4)
        for ours, reference in zip(sync.weights, plain.weights, strict=True):
            np.testing.assert_allclose(ours.numpy(), reference.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="fused=True"):
        hvd.SyncBatchNormalization(fused=True)
    with pytest.raises(ValueError, match="synchronized=True"):
        hvd.SyncBatchNormalization(synchronized=True)
