"""The state of an elastic training, under Horovod's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_checks import RANKS, assert_same_on_all_ranks, flat
from keras_checks.fit_helpers import compiled, data_of, together


def states_are_synchronised_restored_and_committed() -> None:
    import keras

    import horovod.keras as hvd

    def two_layers() -> Any:
        layers = [keras.Input((2,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
        return keras.Sequential(layers)

    value = 1.0 + hvd.rank()
    model = two_layers()
    model.set_weights([np.full((2, 2), value), np.full(2, value)])
    optimizer = keras.optimizers.Adam(0.001)
    state = hvd.elastic.KerasState(model, optimizer, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    assert optimizer.built
    optimizer.iterations.assign(5 + hvd.rank())
    generator = flat([model.layers[0].seed_generator.state])
    state.sync()
    np.testing.assert_array_equal(flat(model.weights), np.ones(6))
    assert (state.batch, state.epoch, int(optimizer.iterations)) == (20, 10, 5)
    np.testing.assert_array_equal(flat([model.layers[0].seed_generator.state]), generator)

    other = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.zeros(2)]
    for commit in (False, True):
        model.set_weights(other)
        optimizer.iterations.assign(9)
        state.batch, state.epoch = 21, 11
        if commit:
            state.commit()
            model.set_weights([np.zeros((2, 2)), np.ones(2)])
            state.batch = 0
        state.restore()
        expected = [1, 2, 3, 4, 0, 0] if commit else [1] * 6
        np.testing.assert_array_equal(flat(model.weights), expected)
        counts = (21, 11, 9) if commit else (20, 10, 5)
        assert (state.batch, state.epoch, int(optimizer.iterations)) == counts

    with pytest.raises(ValueError, match="not built"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]), optimizer)
    with pytest.raises(ValueError, match="give the optimizer"):
        hvd.elastic.KerasState(two_layers())
    for bad in (-1, 1.5):
        with pytest.raises(ValueError, match="batches_per_commit"):
            hvd.elastic.CommitStateCallback(state, bad)


def callbacks_count_and_commit() -> None:
    import keras

    import horovod.keras as hvd

    model = compiled(keras.optimizers.SGD(0.01))
    state = hvd.elastic.KerasState(model, batch=0, epoch=3)
    commits: list[tuple[int, int]] = []
    commit = type(state).commit

    def record() -> None:
        commits.append((state.epoch, state.batch))
        commit(state)
        # What is saved is the model as it is now, on every backend.
        np.testing.assert_array_equal(
            np.concatenate([one.ravel() for one in state._saved_values[: len(model.variables)]]),
            flat(model.variables).astype("float32"),
        )

    state.commit = record
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, 2),
        *together(),
    ]
    data = data_of(hvd.rank(), 40)  # 5 batches
    model.fit(*data, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    assert commits == [(3, 2), (3, 4), (4, 0), (4, 2), (4, 4), (5, 0)]
    commits.clear()
    state.batch = 3  # a restart in the middle of an epoch, which Keras may count from anywhere
    model.fit(
        *data,
        batch_size=8,
        steps_per_epoch=2,
        initial_epoch=7,
        epochs=8,
        verbose=0,
        callbacks=callbacks,
    )
    assert commits == [(5, 5), (6, 0)]


def training_with_a_failure_ends_where_training_without_one_does() -> None:
    import keras

    import horovod.keras as hvd

    steps, epochs = 4, 3

    def trained(fail: bool, batches_per_commit: int) -> tuple[Any, list[tuple[int, int]]]:
        starts: list[tuple[int, int]] = []

        class Fail(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                here = (len(starts), state.epoch, state.batch)
                if fail and hvd.rank() == 1 and here == (1, 1, 2):
                    raise hvd.errors.HorovodInternalError("planted")

        @hvd.elastic.run
        def train(state: Any) -> None:
            starts.append((state.epoch, state.batch))
            callbacks = [
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit),
                Fail(),
                *together(),
            ]
            x, y = data_of(hvd.rank(), steps * 8)
            while state.epoch < epochs:
                left = slice(state.batch * 8, None)
                model.fit(
                    x[left], y[left], batch_size=8, shuffle=False, verbose=0, callbacks=callbacks
                )

        model = compiled(keras.optimizers.SGD(0.05, momentum=0.9), seed=1 + hvd.rank())
        state = hvd.elastic.KerasState(model, batch=0, epoch=0)
        train(state)
        assert int(model.optimizer.iterations) == steps * epochs
        return [*model.weights, *model.optimizer.variables], starts

    without, starts = trained(False, 0)
    assert starts == [(0, 0)]
    assert_same_on_all_ranks(without)
    for batches_per_commit, again in ((0, (1, 0)), (1, (1, 2))):
        variables, starts = trained(True, batches_per_commit)
        assert starts == [(0, 0), again]
        np.testing.assert_array_equal(flat(variables), flat(without))


def unequal_numbers_of_batches_go_on_under_horovods_name() -> None:
    """Where a joined rank refuses all but allreduce."""
    import keras

    import horovod.keras as hvd

    model = compiled(keras.optimizers.Adam(0.01), seed=1 + hvd.rank())
    data = data_of(hvd.rank(), 8 * (2 + 2 * hvd.rank()))
    model.fit(*data, batch_size=8, epochs=2, verbose=0, callbacks=together())
    assert int(model.optimizer.iterations) == 2 * (2 + 2 * (RANKS - 1))
    assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])


CHECKS = {
    one.__name__: one
    for one in (
        states_are_synchronised_restored_and_committed,
        callbacks_count_and_commit,
        training_with_a_failure_ends_where_training_without_one_does,
        unequal_numbers_of_batches_go_on_under_horovods_name,
    )
}
