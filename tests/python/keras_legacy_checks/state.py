"""Saving, loading and elastic state of the lane for Keras 2."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from keras_legacy_checks import (
    assert_same_on_all_ranks,
    check,
    data_of,
    flat,
    small_model,
    state_of,
)
from keras_legacy_checks.optimizers import KINDS, kinds


@check
def saved_models_are_plain_and_load_with_their_optimizer() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for kind in KINDS:
        # A .keras file keeps no state of legacy optimizers.
        for suffix in (".h5", *([".keras"] if kind == "new" else [])):
            model = small_model()
            optimizer = hvd.DistributedOptimizer(kinds(kind).Adam(0.01))
            model.compile(optimizer, "mse")
            model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0)
            with tempfile.TemporaryDirectory() as folder:
                path = str(Path(folder) / f"model{suffix}")
                model.save(path)
                plain = tf.keras.models.load_model(path)
                loaded = hvd.load_model(path)
            case = f"{kind} {suffix}"
            np.testing.assert_array_equal(flat(plain.weights), flat(model.weights), case)
            np.testing.assert_array_equal(flat(loaded.weights), flat(model.weights), case)
            assert type(loaded.optimizer) is type(plain.optimizer)
            loaded.fit(*data_of(hvd.rank()), batch_size=8, verbose=0)
            assert int(loaded.optimizer.iterations.numpy()) == 8, case  # 4 of them in the file
            assert_same_on_all_ranks([*loaded.weights, *state_of(loaded.optimizer)])
            model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0)
            np.testing.assert_allclose(
                flat(loaded.weights), flat(model.weights), atol=1e-6, err_msg=case
            )


@check
def the_best_model_is_saved_by_rank_0_where_filepath_says() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    model = small_model()
    model.compile(hvd.DistributedOptimizer(kinds("new").SGD(0.01)), "mse")
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=True)
    assert best.save_best_only
    assert isinstance(best, tf.keras.callbacks.ModelCheckpoint)
    with pytest.raises(ValueError, match="does not know where to save"):
        model.fit(*data_of(0), verbose=0, callbacks=[best])
    with tempfile.TemporaryDirectory() as folder:
        best.filepath = str(Path(folder) / "best.weights.h5")
        model.fit(*data_of(0), epochs=3, verbose=0, callbacks=[best])
        assert Path(best.filepath).exists() == (hvd.rank() == 0)
        if hvd.rank() == 0:
            again = small_model(seed=7)
            again.load_weights(best.filepath)
            np.testing.assert_array_equal(flat(again.weights), flat(model.weights))


@check
def elastic_state_is_restored_and_synchronised() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for kind in KINDS:
        model = small_model(seed=1 + hvd.rank())
        optimizer = hvd.DistributedOptimizer(kinds(kind).Adam(0.01))
        model.compile(optimizer, "mse")
        state = hvd.elastic.KerasState(model, batch=0, epoch=hvd.rank())
        state.sync()
        assert state.epoch == 0
        assert_same_on_all_ranks([*model.weights, *state_of(optimizer)])
        kept = flat([*model.weights, *state_of(optimizer)])
        model.fit(*data_of(hvd.rank()), batch_size=8, verbose=0)
        assert not np.array_equal(flat([*model.weights, *state_of(optimizer)]), kept)
        state.restore()
        np.testing.assert_array_equal(flat([*model.weights, *state_of(optimizer)]), kept)

        commits: list[tuple[int, int]] = []
        state.commit = lambda state=state, c=commits: c.append((state.epoch, state.batch))
        callbacks = [
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=3),
        ]
        model.fit(*data_of(0), batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
        # 4 batches an epoch: after the third, and at the end.
        assert commits == [(0, 3), (1, 0), (1, 3), (2, 0)]
    with pytest.raises(ValueError, match="is not built"):
        hvd.elastic.KerasState(tf.keras.Sequential([tf.keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="compile the model"):
        hvd.elastic.KerasState(small_model())
