"""Callbacks, metrics, XLA, and the helpers on values."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from keras_checks import RANKS, assert_same_on_all_ranks, check, flat, small_model


def data_of(rank: int, rows: int = 32) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(rank)
    x = rng.normal(size=(rows, 8)).astype("float32")
    return x, x[:, :1] * (rank + 1)


@check
def training_begins_from_the_roots_state() -> None:
    import keras

    import syrtos.keras as hvd

    for root in range(RANKS):
        model = small_model(seed=1 + hvd.rank())
        start = flat(model.weights)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.0))
        model.compile(optimizer=optimizer, loss="mse")
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root)
        model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback])
        np.testing.assert_array_equal(flat(model.weights), hvd.allgather_object(start)[root])
        assert_same_on_all_ranks([*model.weights, *optimizer.variables])


@check
def a_model_without_input_shape_is_broadcast_after_the_first_batch() -> None:
    import keras

    import syrtos.keras as hvd

    keras.utils.set_random_seed(1 + hvd.rank())
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer=optimizer, loss="mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback])
    assert callback.broadcast_done
    assert_same_on_all_ranks([*model.weights, *optimizer.variables])


@check
def local_variables_are_not_broadcast() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model(seed=1 + hvd.rank())
    before = flat(model.weights[:1])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[model.weights[0]])
    model.fit(*data_of(0), batch_size=32, verbose=0, callbacks=[callback])
    np.testing.assert_array_equal(flat(model.weights[:1]), before)
    assert_same_on_all_ranks(model.weights[1:])


@check
def ranks_agree_on_the_first_epoch() -> None:
    import keras

    import syrtos.keras as hvd

    class Restore(keras.callbacks.Callback):
        """Does what BackupAndRestore does after a crash in epoch 2."""

        def on_train_begin(self, logs: Any = None) -> None:
            self.model._initial_epoch = 2

    epochs = []
    model = small_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    model.fit(
        *data_of(hvd.rank()),
        epochs=4,
        verbose=0,
        callbacks=[
            *([Restore()] if hvd.rank() == 0 else []),
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            keras.callbacks.LambdaCallback(on_epoch_begin=lambda e, _: epochs.append(e)),
        ],
    )
    assert epochs == [2, 3]


@check
def an_optimizer_wrapped_after_training_reduces() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model()
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0)
    hvd.DistributedOptimizer(model.optimizer)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback])
    assert_same_on_all_ranks(model.weights)


@check
def metrics_are_exact_with_uneven_samples() -> None:
    import keras

    import syrtos.keras as hvd

    rng = np.random.default_rng(5)
    x = rng.normal(size=(320, 8)).astype("float32")
    y = (x[:, :1] * 2 + np.arange(320)[:, None] / 50).astype("float32")
    train = [slice(0, 192), slice(192, 320)][hvd.rank()]
    validation = [slice(0, 100), slice(100, 320)][hvd.rank()]
    model = small_model()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)),
        loss="mse",
        metrics=["mae", keras.metrics.RootMeanSquaredError(name="rmse")],
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
            keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(dict(logs))),
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
    whole = model.evaluate(x[validation], y[validation], verbose=0, return_dict=True)
    np.testing.assert_allclose(whole["rmse"], expected["rmse"], rtol=1e-5)
    with hvd.local():
        if hvd.rank() == 0:
            own = model.evaluate(x[validation], y[validation], verbose=0, return_dict=True)
            np.testing.assert_allclose(own["loss"], np.mean(error[:100] ** 2), rtol=1e-5)


@check
def a_metric_may_say_how_its_state_is_reduced() -> None:
    import keras

    import syrtos.keras as hvd

    class Largest(keras.metrics.Metric):
        syrtos_op = "max"

        def __init__(self) -> None:
            super().__init__(name="largest")
            self.value = self.add_variable((), "zeros")

        def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y)))

        def result(self) -> Any:
            return self.value

    model = small_model()
    model.compile(optimizer="sgd", loss="mse", metrics=[Largest()])
    assert hvd.attach(model) is model
    assert hvd.attach(model) is model  # a second time does nothing
    y = np.full((4, 1), 10.0 + hvd.rank(), "float32")
    result = model.evaluate(np.ones((4, 8), "float32"), y, verbose=0, return_dict=True)
    assert result["largest"] == 10.0 + RANKS - 1


@check
def early_stopping_and_plateau_agree_on_all_ranks() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.05))
    model.compile(optimizer=optimizer, loss="mse")
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
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, min_delta=0.02),
            keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, min_delta=0.05),
            hvd.callbacks.MetricAverageCallback(),  # its place in the list does not matter
        ],
    )
    mine = (len(history.history["loss"]), float(optimizer.learning_rate), history.history)
    assert all(other == mine for other in hvd.allgather_object(mine))


@check
def xla_is_switched_off_by_the_callback_and_else_refused() -> None:
    import keras

    import syrtos.keras as hvd

    def compiled() -> Any:
        model = small_model()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), "mse", jit_compile=True)
        return model

    model, text = compiled(), io.StringIO()
    with contextlib.redirect_stderr(text):
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(*data_of(hvd.rank()), batch_size=16, verbose=0, callbacks=[callback])
    assert text.getvalue().count("jit_compile=False") == (1 if hvd.rank() == 0 else 0)
    assert_same_on_all_ranks(model.weights)
    with pytest.raises(hvd.errors.BackendUnavailableError, match="jit_compile=False"):
        compiled().fit(*data_of(hvd.rank()), batch_size=16, verbose=0)


@check
def several_steps_in_one_call_and_eager_steps_train_alike() -> None:
    import keras

    import syrtos.keras as hvd

    results = []
    for options in ({}, {"steps_per_execution": 4}, {"run_eagerly": True}):
        model = small_model()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
        model.compile(optimizer=optimizer, loss="mse", **options)
        model.fit(*data_of(hvd.rank()), batch_size=4, shuffle=False, verbose=0)
        assert_same_on_all_ranks(model.weights)
        results.append(flat(model.weights))
    np.testing.assert_allclose(results[1], results[0], atol=1e-6)
    np.testing.assert_allclose(results[2], results[0], atol=1e-6)


@check
def the_learning_rate_warms_up_batch_by_batch() -> None:
    import keras

    import syrtos.keras as hvd

    def rates(
        callback: Any, epochs: int, initial_epoch: int = 0
    ) -> tuple[list[float], list[float]]:
        used = []
        model = small_model()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.8, momentum=0.9)), "mse")
        record = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: used.append(float(model.optimizer.learning_rate))
        )
        history = model.fit(
            *data_of(hvd.rank()),
            batch_size=8,  # 4 batches
            epochs=epochs,
            initial_epoch=initial_epoch,
            verbose=0,
            callbacks=[callback, record],
        )
        assert model.optimizer.momentum == 0.9
        return used, history.history["lr"]

    warm = [0.8 / RANKS * (1 + (RANKS - 1) * (i + 1) / 8) for i in range(8)]
    used, logged = rates(hvd.callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2), 3)
    np.testing.assert_allclose(used, [*warm, *[0.8] * 4], rtol=1e-6)
    assert used[7] == np.float32(0.8)
    np.testing.assert_allclose(logged, [warm[3], 0.8, 0.8], rtol=1e-6)
    used, _ = rates(hvd.callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2), 3, 2)
    np.testing.assert_allclose(used, [0.8] * 4, rtol=1e-6)

    schedule = hvd.callbacks.LearningRateScheduleCallback
    used, _ = rates(schedule(0.8, 0.5, start_epoch=1, end_epoch=2), 3)
    np.testing.assert_allclose(used, [0.8] * 4 + [0.4] * 8, rtol=1e-6)
    used, _ = rates(schedule(0.8, lambda epoch: 1 / (1 + epoch), staircase=False), 2)
    np.testing.assert_allclose(used, [0.8 / (1 + i / 4) for i in range(8)], rtol=1e-6)

    model = small_model()
    falling = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(keras.optimizers.SGD(falling), "mse")
    with pytest.raises(ValueError, match="schedule already"):
        model.fit(*data_of(0), verbose=0, callbacks=[schedule(0.1, 2.0)])


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
def the_same_names_are_in_tensorflow_keras() -> None:
    import syrtos.keras
    import syrtos.tensorflow.keras
    import syrtos.tensorflow.keras.callbacks
    from syrtos.keras import _backend

    for name in syrtos.keras.__all__:
        assert getattr(syrtos.tensorflow.keras, name) is getattr(syrtos.keras, name)
    assert syrtos.tensorflow.keras.callbacks is syrtos.keras.callbacks
    with pytest.raises(ImportError, match="works with the Keras backend tensorflow.*uses jax"):
        _backend.check("jax")
