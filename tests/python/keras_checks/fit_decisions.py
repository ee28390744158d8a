"""What callbacks decide on one rank, they decide on all."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from keras_checks import assert_same_on_all_ranks
from keras_checks.fit_helpers import compiled, data_of, fit_check, together


@fit_check
def early_stopping_plateau_and_checkpoint_agree_in_every_order() -> None:
    import keras

    import syrtos.keras as hvd

    x, y = data_of(hvd.rank(), 64)
    noisy = y + np.random.default_rng(9).normal(size=y.shape).astype("float32") * 3 * hvd.rank()
    results = []
    for order in itertools.islice(itertools.permutations(range(4)), 0, None, 9):
        with tempfile.TemporaryDirectory() as folder:
            callbacks = [
                keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, min_delta=0.02),
                keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, min_delta=0.05),
                keras.callbacks.ModelCheckpoint(
                    folder + "/{epoch}.weights.h5",
                    monitor="val_loss",
                    save_best_only=True,
                    save_weights_only=True,
                ),
                hvd.callbacks.MetricAverageCallback(),
            ]
            model = compiled(keras.optimizers.Adam(0.05))
            history = model.fit(
                x,
                y,
                batch_size=16,
                shuffle=False,
                epochs=12,
                verbose=0,
                validation_data=(x, noisy),
                callbacks=[callbacks[place] for place in order],
            ).history
            saved = sorted(path.name for path in Path(folder).iterdir())
        rate = float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))
        results.append((len(history["loss"]), rate, saved, history["val_loss"]))
    assert all(mine == results for mine in hvd.allgather_object(results))
    assert all(result[0] == results[0][0] for result in results)
    assert results[0][0] < 12
    assert 0 < len(results[0][2]) < 12


@fit_check
def a_stop_on_one_rank_is_a_stop_on_all() -> None:
    import keras

    import syrtos.keras as hvd

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self, epoch: int, batch: int | None) -> None:
            super().__init__()
            self.when, self.epoch = (epoch, batch), -1

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == self.when:
                self.model.stop_training = True

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if (epoch, None) == self.when:
                self.model.stop_training = True

    for batch in (None, 1):
        for last in (True, False):
            model = compiled(keras.optimizers.SGD(0.01))
            stop = [Stop(1, batch)] if hvd.rank() == 1 else []
            callbacks = [*together(), *stop] if last else [*stop, *together()]
            history = model.fit(
                *data_of(hvd.rank()), batch_size=8, epochs=5, verbose=0, callbacks=callbacks
            )
            assert history.epoch == [0, 1]
            assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])
            assert "on_epoch_end" not in vars(history)  # it is as Keras makes it


@fit_check
def not_a_number_on_one_rank_ends_training_on_all() -> None:
    import keras

    import syrtos.keras as hvd

    x, y = data_of(hvd.rank())
    if hvd.rank() == 1:
        y[9] = np.nan  # in the second batch
    model = compiled(keras.optimizers.SGD(0.01))
    nan = keras.callbacks.TerminateOnNaN()
    history = model.fit(
        x, y, batch_size=8, shuffle=False, epochs=5, verbose=0, callbacks=[nan, *together()]
    )
    assert history.epoch == [0]
    assert_same_on_all_ranks(model.optimizer.variables)
