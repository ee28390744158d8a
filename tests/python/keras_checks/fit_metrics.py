"""Metrics, moving statistics, saved models, ways of running."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from keras_checks import RANKS, assert_same_on_all_ranks, flat, small_model
from keras_checks.fit_helpers import compiled, data_of, fit_check, numbers, together


@fit_check
def metrics_are_exact_with_uneven_samples() -> None:
    import keras

    import syrtos.keras as hvd

    x, y = data_of(5, 320)
    y += (np.arange(320)[:, None] / 50).astype("float32")
    train = [slice(0, 192), slice(192, 320)][hvd.rank()]
    validation = [slice(0, 100), slice(100, 320)][hvd.rank()]
    metrics = ["mae", keras.metrics.RootMeanSquaredError(name="rmse")]
    model = compiled(keras.optimizers.SGD(0.0), metrics=metrics)
    seen: list[dict[str, float]] = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda _, logs: seen.append(numbers(logs)),
        on_train_end=lambda logs: seen.append(numbers(logs)),
    )
    history = model.fit(
        x[train],
        y[train],
        batch_size=[24, 16][hvd.rank()],
        shuffle=False,
        verbose=0,
        validation_data=(x[validation], y[validation]),
        callbacks=[note, hvd.callbacks.MetricAverageCallback()],
    )
    error = keras.ops.convert_to_numpy(model(x)) - y
    expected = {
        "loss": np.mean(error**2),
        "mae": np.mean(np.abs(error)),
        "rmse": np.sqrt(np.mean(error**2)),
    }
    assert len(seen) == 2
    for logs in (*seen, {name: values[0] for name, values in history.history.items()}):
        for name, value in expected.items():
            np.testing.assert_allclose(logs[name], value, rtol=1e-5)
            np.testing.assert_allclose(logs[f"val_{name}"], value, rtol=1e-5)
    whole = model.evaluate(x[validation], y[validation], verbose=0, return_dict=True)
    np.testing.assert_allclose(whole["rmse"], expected["rmse"], rtol=1e-5)
    with hvd.local():
        if hvd.rank() == 0:
            own = model.evaluate(x[validation], y[validation], verbose=0, return_dict=True)
            np.testing.assert_allclose(own["loss"], np.mean(error[:100] ** 2), rtol=1e-5)


@fit_check
def releases_of_keras_that_only_show_results_have_them_averaged() -> None:
    """Before 3.3.3: the method that is replaced does not exist."""
    import keras

    import syrtos.keras as hvd

    seen: list[float] = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda _, logs: seen.append(float(logs["loss"]))
    )
    with mock.patch("syrtos.keras.hooks._METHOD", "_absent"):
        model = compiled(keras.optimizers.SGD(0.0))
        x, y = data_of(hvd.rank(), 8 * (2 + hvd.rank()))
        with pytest.warns(UserWarning, match="put MetricAverageCallback first"):
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[*together()[::-1], note])
        of_ranks = hvd.allgather_object(
            float(np.mean((keras.ops.convert_to_numpy(model(x)) - y) ** 2))
        )
        np.testing.assert_allclose(seen, np.mean(of_ranks), rtol=1e-5)
        assert int(model.optimizer.iterations) == 2 + RANKS - 1
        assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])


@fit_check
def a_metric_may_say_how_its_state_is_reduced() -> None:
    import keras

    import syrtos.keras as hvd

    class Largest(keras.metrics.Metric):  # type: ignore[misc]
        def __init__(self, op: str) -> None:
            super().__init__(name=op)
            self.syrtos_op = op
            self.value = self.add_variable((), "zeros")

        def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y)))

        def result(self) -> Any:
            return keras.ops.convert_to_tensor(self.value)

    def evaluated(*ops: str) -> dict[str, float]:
        model = small_model()
        metrics = [Largest(op) for op in ops]
        model.compile(optimizer="sgd", loss="mse", metrics=metrics)
        assert hvd.attach(model) is model
        assert hvd.attach(model) is model  # a second time does nothing
        y = np.full((4, 1), 10.0 + hvd.rank(), "float32")
        x = np.ones((4, 8), "float32")
        return numbers(model.evaluate(x, y, verbose=0, return_dict=True))

    result = evaluated("max", "min", "mean", "sum", "none")
    of_ranks = [10.0 + rank for rank in range(RANKS)]
    assert result["max"] == max(of_ranks)
    assert result["min"] == min(of_ranks)
    assert result["mean"] == sum(of_ranks) / RANKS
    assert result["sum"] == sum(of_ranks)
    assert result["none"] == of_ranks[hvd.rank()]
    with pytest.raises(ValueError, match="syrtos_op='median'"):
        evaluated("median")


@fit_check
def an_evaluation_in_the_middle_of_an_epoch_is_no_end_of_batches() -> None:
    import keras

    import syrtos.keras as hvd

    x, y = data_of(0)

    class Evaluate(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                other.evaluate(x, y, verbose=0)

    other = hvd.attach(compiled(keras.optimizers.SGD(0.0)))
    optimizer = keras.optimizers.SGD(0.01)
    model = compiled(optimizer)
    rows = 32 if hvd.rank() == 0 else 24
    model.fit(
        *data_of(hvd.rank(), rows), batch_size=8, verbose=0, callbacks=[Evaluate(), *together()]
    )
    assert int(optimizer.iterations) == 4
    assert_same_on_all_ranks(model.weights)
    with hvd.local():
        model.evaluate(x, y, verbose=0)


@fit_check
def moving_statistics_are_averaged_after_each_epoch() -> None:
    import keras

    import syrtos.keras as hvd

    def normalised() -> Any:
        keras.utils.set_random_seed(3)
        momentum = keras.layers.BatchNormalization(momentum=0.5)
        return keras.Sequential([keras.Input((8,)), momentum, keras.layers.Dense(1)])

    rows = 16
    of_ranks = []  # after one epoch of two batches, by formula
    for rank in range(RANKS):
        x = data_of(rank, rows)[0]
        mean, variance = np.zeros(8), np.ones(8)
        for batch in (x[:8], x[8:]):
            mean = 0.5 * mean + 0.5 * batch.mean(0)
            variance = 0.5 * variance + 0.5 * batch.var(0)
        of_ranks.append((mean, variance))
    for averaged in (True, False):
        model = compiled(keras.optimizers.SGD(0.01), model=normalised())
        broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(
            0, average_moving_statistics=averaged
        )
        x, y = data_of(hvd.rank(), rows)
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[broadcast])
        expected = np.mean(of_ranks, axis=0) if averaged else of_ranks[hvd.rank()]
        layer = model.layers[0]
        np.testing.assert_allclose(flat([layer.moving_mean]), expected[0], atol=1e-5)
        np.testing.assert_allclose(flat([layer.moving_variance]), expected[1], atol=1e-5)
    # With unequal numbers of batches as well, though then the other weights are broadcast.
    model = compiled(keras.optimizers.SGD(0.01), model=normalised())
    x, y = data_of(hvd.rank(), 8 * (2 + hvd.rank()))
    model.fit(x, y, batch_size=8, verbose=0, callbacks=together())
    assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])
    frozen = normalised()
    frozen.layers[0].trainable = False
    frozen.layers[0].moving_mean.assign(np.full(8, 1.0 + hvd.rank(), "float32"))
    compiled(keras.optimizers.SGD(0.01), model=frozen)
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(1)
    frozen.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=[broadcast])
    np.testing.assert_array_equal(flat([frozen.layers[0].moving_mean]), np.full(8, 2.0))


@fit_check
def the_best_model_is_saved_once_by_rank_0() -> None:
    import keras

    import syrtos.keras as hvd

    folder = Path(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None))
    best = hvd.callbacks.BestModelCheckpoint(monitor="val_loss")
    with pytest.raises(ValueError, match="filepath"):
        compiled(keras.optimizers.SGD(0.0)).fit(*data_of(0), verbose=0, callbacks=[best])
    path = folder / f"{keras.backend.backend()}.keras"
    best.filepath = path
    values: list[Any] = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda _, logs: values.append((float(logs["val_loss"]), flat(model.weights)))
    )
    model = compiled(keras.optimizers.SGD(0.1, momentum=0.95))
    wrote: list[Any] = []
    object.__setattr__(
        model, "save", lambda *a, **k: wrote.append(type(model).save(model, *a, **k))
    )
    model.fit(
        *data_of(hvd.rank()),
        batch_size=8,
        epochs=6,
        verbose=0,
        validation_data=data_of(4 + hvd.rank()),
        callbacks=[note, best, *together()],
    )
    lowest = min(value for value, _ in values)
    np.testing.assert_allclose(best.best, lowest)
    improvements = sum(
        value < min([1e9, *[one for one, _ in values[:i]]]) for i, (value, _) in enumerate(values)
    )
    assert len(wrote) == (improvements if hvd.rank() == 0 else 0)
    loaded = keras.saving.load_model(path)
    expected = next(weights for value, weights in values if value == lowest)
    np.testing.assert_array_equal(flat(loaded.weights), expected)
    named = hvd.callbacks.BestModelCheckpoint(
        "loss", save_weights_only=True, filepath=folder / "w.weights.h5"
    )
    compiled(keras.optimizers.SGD(0.0)).fit(*data_of(0), verbose=0, callbacks=[named, *together()])
    hvd.barrier()
    assert (folder / "w.weights.h5").exists()


@fit_check
def several_fits_and_a_copy_of_the_model_train_alike() -> None:
    import keras

    import syrtos.keras as hvd

    results = []
    for epochs in ((2,), (1, 1)):
        model = compiled(keras.optimizers.SGD(0.05, momentum=0.9))
        callbacks = together()
        for count in epochs:
            model.fit(
                *data_of(hvd.rank()),
                batch_size=8,
                shuffle=False,
                epochs=count,
                verbose=0,
                callbacks=callbacks,
            )
        results.append(flat(model.weights))
    np.testing.assert_array_equal(*results)
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    with hvd.local():  # it has nothing of Syrtos; neither has the prediction of the other
        twin.compile(loss="mse")
        if hvd.rank() == 1:
            twin.evaluate(*data_of(0), verbose=0)
            model.predict(data_of(0)[0], verbose=0)


@fit_check
def several_steps_in_one_call_and_eager_steps_train_alike() -> None:
    import keras

    import syrtos.keras as hvd

    several = [] if keras.backend.backend() == "torch" else [{"steps_per_execution": 4}]
    results = []
    for options in ({}, *several, {"run_eagerly": True}):
        model = compiled(keras.optimizers.SGD(0.05, momentum=0.9), **options)
        data = data_of(hvd.rank(), 32 + 4 * hvd.rank())
        model.fit(*data, batch_size=4, shuffle=False, verbose=0, callbacks=together())
        assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])
        results.append(flat(model.weights))
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], atol=1e-6)


@fit_check
def training_is_not_compiled_by_xla_where_that_cannot_be() -> None:
    import keras

    import syrtos.keras as hvd
    from syrtos.keras._backend import current

    if keras.backend.backend() != "tensorflow":
        return  # torch takes minutes to compile, and JAX always does
    model, text = compiled(keras.optimizers.SGD(), jit_compile=True), io.StringIO()
    with contextlib.redirect_stderr(text):
        model.fit(*data_of(hvd.rank()), batch_size=16, verbose=0, callbacks=together())
    told = hvd.rank() == 0 and not current.COMPILES_COLLECTIVES
    assert text.getvalue().count("jit_compile=False") == told
    assert_same_on_all_ranks(model.weights)


@fit_check
def the_same_names_are_in_tensorflow_keras() -> None:
    import keras

    import syrtos.keras

    if keras.backend.backend() != "tensorflow":
        return
    import syrtos.tensorflow.keras
    import syrtos.tensorflow.keras.callbacks
    import syrtos.tensorflow.keras.elastic

    for name in syrtos.keras.__all__:
        assert getattr(syrtos.tensorflow.keras, name) is getattr(syrtos.keras, name)
    assert syrtos.tensorflow.keras.callbacks is syrtos.keras.callbacks
    assert syrtos.tensorflow.keras.elastic is syrtos.keras.elastic
