"""What keeps ranks together: the broadcast, unequal numbers of batches, decisions of callbacks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_checks import RANKS, assert_same_on_all_ranks, flat, small_model
from keras_checks.fit_helpers import Array, compiled, data_of, fit_check, together


@fit_check
def training_begins_from_the_roots_state() -> None:
    import keras

    import syrtos.keras as hvd

    for root in range(RANKS):
        model = compiled(keras.optimizers.Adam(0.0), seed=1 + hvd.rank())
        model.optimizer.build(model.trainable_variables)
        for variable in model.optimizer.variables[2:]:
            variable.assign(np.full(variable.shape, 0.1 + hvd.rank(), "float32"))
        of_ranks = hvd.allgather_object((flat(model.weights), flat(model.optimizer.variables[2:])))
        seen: list[Any] = []

        class Look(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == 0:
                    model = self.model
                    seen.extend([flat(model.weights), flat(model.optimizer.variables[2:])])  # noqa: B023

        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root)
        model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback, Look()])
        assert callback.broadcast_done
        for mine, of_root in zip(seen, of_ranks[root], strict=True):
            np.testing.assert_array_equal(mine, of_root)
        assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])


@fit_check
def a_model_without_input_shape_is_broadcast_too() -> None:
    import keras

    import syrtos.keras as hvd

    for batch_size in (8, 32):  # several batches, and a single one
        keras.utils.set_random_seed(1 + hvd.rank())
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
        compiled(keras.optimizers.Adam(0.01), model=model)
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        data = data_of(hvd.rank())
        model.fit(*data, batch_size=batch_size, verbose=0, callbacks=[callback])
        assert callback.broadcast_done
        assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])


@fit_check
def local_variables_stay_each_ranks_own() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model(seed=1 + hvd.rank())
    own = model.layers[0].kernel
    before = flat([own])
    # Frozen, as its gradient would be averaged.
    model.layers[0].trainable = False
    compiled(keras.optimizers.SGD(0.1), model=model)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(RANKS - 1, local_variables=[own])
    x, y = data_of(0, 32 + 8 * hvd.rank())  # also where a longer rank's state goes to the others
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[callback])
    np.testing.assert_array_equal(flat([own]), before)
    assert_same_on_all_ranks([one for one in model.weights if one is not own])

    model = small_model(seed=1 + hvd.rank())
    own = model.layers[0].kernel
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    optimizer.register_local_var(own)
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[*together()])
    slot = next(one for one in optimizer.variables if "dense" in one.name)
    for one in (own, slot):
        values = hvd.allgather_object(flat([one]))
        assert not np.array_equal(values[0], values[1])
    everything = [*model.weights, *optimizer.variables]
    assert_same_on_all_ranks([one for one in everything if one is not own and one is not slot])


@fit_check
def random_generators_stay_different() -> None:
    import keras

    import syrtos.keras as hvd

    keras.utils.set_random_seed(10 + hvd.rank())
    layers = [keras.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = compiled(keras.optimizers.SGD(0.01), model=keras.Sequential(layers))
    model.fit(*data_of(0), batch_size=8, verbose=0, callbacks=together())
    assert_same_on_all_ranks(model.weights)
    seeds = hvd.allgather_object(flat([model.layers[0].seed_generator.state]))
    assert not np.array_equal(seeds[0], seeds[1])


@fit_check
def ranks_agree_on_the_first_epoch() -> None:
    import keras

    import syrtos.keras as hvd

    class Restore(keras.callbacks.Callback):  # type: ignore[misc]
        """Does what BackupAndRestore does after a crash in epoch 2."""

        def on_train_begin(self, logs: Any = None) -> None:
            self.model._initial_epoch = 2

    epochs: list[int] = []
    compiled(keras.optimizers.SGD(0.01)).fit(
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


@fit_check
def a_crashed_run_is_resumed_from_the_roots_backup() -> None:
    import keras

    import syrtos.keras as hvd

    class Crash(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise KeyError("crash")

    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)

    def run(*more: Any) -> tuple[Any, list[int]]:
        epochs: list[int] = []
        model = compiled(keras.optimizers.Adam(0.01), seed=1 + hvd.rank())
        backup = [keras.callbacks.BackupAndRestore(folder)] if hvd.rank() == 0 else []
        note = keras.callbacks.LambdaCallback(on_epoch_begin=lambda e, _: epochs.append(e))
        try:
            callbacks = [*backup, *together(), note, *more]
            model.fit(*data_of(hvd.rank()), verbose=0, epochs=4, callbacks=callbacks)
        except KeyError:
            pass
        return model, epochs

    assert run(Crash())[1] == [0, 1, 2]
    model, epochs = run()
    assert epochs == [2, 3]
    assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])
    assert int(model.optimizer.iterations) == 4  # one batch of 32 rows in an epoch


@fit_check
def an_optimizer_wrapped_after_training_reduces() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model()
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0)
    hvd.DistributedOptimizer(model.optimizer)
    model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0, callbacks=together())
    assert_same_on_all_ranks(model.weights)


# ---- unequal numbers of batches ----

STEPS = (100, 103)
ROWS = 4


def plain_run(epochs: int, options: dict[str, Any]) -> tuple[Array, list[float], Any]:
    """What one process makes of the joined batches: both ranks', then those of the longer one."""
    import keras

    x, y = zip(*(data_of(rank, STEPS[rank] * ROWS) for rank in range(RANKS)), strict=True)
    model = small_model()
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9, **options), loss="mse")
    history = []
    for _ in range(epochs):
        total = rows = 0.0
        for step in range(max(STEPS)):
            place = slice(step * ROWS, (step + 1) * ROWS)
            working = [rank for rank in range(RANKS) if step < STEPS[rank]]
            loss = model.train_on_batch(
                np.concatenate([x[rank][place] for rank in working]),
                np.concatenate([y[rank][place] for rank in working]),
            )
            total += float(loss) * ROWS * len(working)
            rows += ROWS * len(working)
        history.append(total / rows)
    return flat(model.weights), history, model


@fit_check
def one_rank_may_have_more_batches() -> None:
    import keras

    import syrtos.keras as hvd

    x, y = data_of(hvd.rank(), STEPS[hvd.rank()] * ROWS)
    held_out = data_of(7, 50 * ROWS)
    mine = slice(0, 20 * ROWS) if hvd.rank() == 0 else slice(20 * ROWS, 50 * ROWS)

    def batches() -> Iterator[tuple[Array, Array]]:  # of unknown number
        for step in range(STEPS[hvd.rank()]):
            place = slice(step * ROWS, (step + 1) * ROWS)
            yield x[place], y[place]

    for options in ({}, {"global_clipnorm": 0.3}):
        weights, expected, plain = plain_run(2, options)
        for generated in (False, True):
            optimizer = keras.optimizers.SGD(0.01, momentum=0.9, **options)
            model = compiled(optimizer, seed=1 + hvd.rank())
            epochs = 1 if generated else 2
            history = model.fit(
                *((batches(),) if generated else (x, y)),
                batch_size=None if generated else ROWS,
                epochs=epochs,
                shuffle=False,
                verbose=0,
                validation_data=tuple(part[mine] for part in held_out),
                callbacks=together(),
            ).history
            assert_same_on_all_ranks([*model.weights, *optimizer.variables])
            assert hvd.allgather_object(history) == [history] * RANKS
            # Keras on TensorFlow makes one batch more of a generator than that has.
            steps = int(optimizer.iterations) - (
                generated and keras.backend.backend() == "tensorflow"
            )
            assert steps == max(STEPS) * epochs
            if not generated:
                np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)
                np.testing.assert_allclose(flat(model.weights), weights, atol=1e-5)
                whole = plain.evaluate(*held_out, verbose=0)
                np.testing.assert_allclose(history["val_loss"][-1], whole, rtol=1e-4)


@fit_check
def accumulating_ranks_may_have_unequal_numbers_of_batches() -> None:
    import keras

    import syrtos.keras as hvd

    for steps in ((5, 7), (7, 5), (6, 7)):  # an update after every fourth batch
        optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=4)
        model = compiled(optimizer, seed=1 + hvd.rank())
        x, y = data_of(hvd.rank(), steps[hvd.rank()] * ROWS)
        model.fit(x, y, batch_size=ROWS, epochs=3, verbose=0, callbacks=together())
        assert int(optimizer.iterations) == 3 * max(steps) // 4
        assert_same_on_all_ranks([*model.weights, *optimizer.variables])


@fit_check
def loss_scales_stay_equal_with_unequal_numbers_of_batches() -> None:
    import keras

    import syrtos.keras as hvd

    inner = keras.optimizers.SGD(0.01)
    scaled = keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=3)
    model = compiled(scaled, seed=1 + hvd.rank())
    x, y = data_of(hvd.rank(), (4 + 3 * hvd.rank()) * ROWS)
    if hvd.rank() == 1:
        y[-1] = np.inf  # the last of the batches that it makes alone is skipped
    model.fit(x, y, batch_size=ROWS, verbose=0, shuffle=False, callbacks=together())
    assert int(inner.iterations) == 6
    assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])
    assert float(model.optimizer.dynamic_scale) == 8.0 * 2 * 2 / 2


@fit_check
def the_helper_makes_numbers_of_steps_equal() -> None:
    import keras
    import pytest

    import syrtos.keras as hvd

    steps = hvd.min_steps(10 + 3 * hvd.rank())
    assert steps == 10
    model = compiled(keras.optimizers.SGD(0.01))
    x, y = data_of(hvd.rank(), (10 + 3 * hvd.rank()) * ROWS)
    model.fit(x, y, batch_size=ROWS, steps_per_epoch=steps, verbose=0, callbacks=together())
    assert int(model.optimizer.iterations) == 10
    with pytest.raises(ValueError, match="rank 1 has 0 batches"):
        hvd.min_steps(1 - hvd.rank())
    assert hvd.verbose("auto") == ("auto" if hvd.rank() == 0 else 0)
    assert hvd.verbose(2) == (2 if hvd.rank() == 0 else 0)
