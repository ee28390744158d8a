"""Learning rates: callbacks and schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_checks import RANKS, flat, small_model
from keras_checks.fit_helpers import compiled, data_of, fit_check, together


@fit_check
def the_learning_rate_warms_up_batch_by_batch() -> None:
    import keras

    import syrtos.keras as hvd

    def rates(
        callback: Any, epochs: int, initial_epoch: int = 0, momentum: float = 0.9
    ) -> tuple[list[float], list[float]]:
        used: list[float] = []

        class Record(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                optimizer = self.model.optimizer
                used.append(float(keras.ops.convert_to_numpy(optimizer.learning_rate)))
                assert optimizer.momentum == momentum

        model = compiled(keras.optimizers.SGD(0.8, momentum=momentum))
        history = model.fit(
            *data_of(hvd.rank()),
            batch_size=8,  # 4 batches
            epochs=epochs,
            initial_epoch=initial_epoch,
            verbose=0,
            callbacks=[callback, Record()],
        )
        assert hvd.allgather_object(used) == [used] * RANKS
        return used, history.history["lr"]

    warm = [0.8 / RANKS * (1 + (RANKS - 1) * (i + 1) / 8) for i in range(8)]
    for momentum in (0.0, 0.9):
        warmup = hvd.callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2, verbose=1)
        used, logged = rates(warmup, 3, momentum=momentum)
        np.testing.assert_allclose(used, [*warm, *[0.8] * 4], rtol=1e-6)
        assert used[7] == np.float32(0.8)
        np.testing.assert_allclose(logged, [warm[3], 0.8, 0.8], rtol=1e-6)
    used, _ = rates(hvd.callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2), 3, 2)
    np.testing.assert_allclose(used, [0.8] * 4, rtol=1e-6)

    schedule = hvd.callbacks.LearningRateScheduleCallback
    used, logged = rates(schedule(0.8, 0.5, start_epoch=1, end_epoch=2), 3)
    np.testing.assert_allclose(used, [0.8] * 4 + [0.4] * 8, rtol=1e-6)
    np.testing.assert_allclose(logged, [0.8, 0.4, 0.4], rtol=1e-6)
    used, _ = rates(schedule(0.8, lambda epoch: 1 / (1 + epoch)), 2)
    np.testing.assert_allclose(used, [0.8] * 4 + [0.4] * 4, rtol=1e-6)
    used, _ = rates(schedule(0.8, lambda epoch: 1 / (1 + epoch), staircase=False), 2)
    np.testing.assert_allclose(used, [0.8 / (1 + i / 4) for i in range(8)], rtol=1e-6)

    model = small_model()
    falling = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(keras.optimizers.SGD(falling), "mse")
    with pytest.raises(ValueError, match=r"schedule already.*schedules\.warmup"):
        model.fit(*data_of(0), verbose=0, callbacks=[schedule(0.1, 2.0)])


@fit_check
def a_sequence_of_schedules_is_followed_and_losses_are_equal() -> None:
    import keras

    import syrtos.keras as hvd

    rate = 0.1 * RANKS
    schedule = hvd.callbacks.LearningRateScheduleCallback
    model = compiled(keras.optimizers.Adam())
    history = model.fit(
        *data_of(hvd.rank()),
        batch_size=16,
        epochs=6,
        verbose=0,
        callbacks=[
            hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=2),
            schedule(rate, 1e-1, start_epoch=2, end_epoch=3),
            schedule(rate, 1e-2, start_epoch=3, end_epoch=4),
            schedule(rate, lambda epoch: epoch, start_epoch=4, end_epoch=6),
            *together(),
        ],
    ).history
    expected = [0.75 * rate, rate, 0.1 * rate, 0.01 * rate, 4 * rate, 5 * rate]
    np.testing.assert_allclose(history["lr"], expected, rtol=1e-6)
    assert hvd.allgather_object(history["loss"]) == [history["loss"]] * RANKS


@fit_check
def a_warm_up_can_be_part_of_the_step() -> None:
    import keras

    import syrtos.keras as hvd

    def used(rate: Any, steps: int) -> list[float]:
        """Each step's rate: the gradient is 1, so it is what is subtracted from the weight."""
        layer = keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)
        model = keras.Sequential([keras.Input((1,)), layer])
        weights = [0.0]
        note = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: note_weight())

        def note_weight() -> None:
            weights.append(float(flat(model.weights)[0]))

        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(rate)), loss=lambda y, p: p)
        ones = np.ones((1, 1), "float32")
        model.fit(ones, ones, epochs=steps, verbose=0, callbacks=[note, *together()])
        return (-np.diff(weights)).tolist()

    warm = [(i * (RANKS - 1) + 4) / (4 * RANKS) for i in (1, 2, 3, 4, 4, 4)]
    plain = hvd.schedules.warmup(0.8, warmup_steps=4)
    assert type(plain).__module__.startswith("keras")
    np.testing.assert_allclose(used(plain, 6), 0.8 * np.array(warm), rtol=1e-5)
    falling = keras.optimizers.schedules.InverseTimeDecay(0.8, 1, 0.5)
    both = hvd.schedules.warmup(falling, warmup_steps=4)
    expected = [0.8 / (1 + 0.5 * i) * factor for i, factor in enumerate(warm)]
    np.testing.assert_allclose(used(both, 6), expected, rtol=1e-5)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(both))
    assert again.get_config() == both.get_config()
    assert float(hvd.schedules.warmup(0.3, 1)(0)) == np.float32(0.3)
    assert float(hvd.schedules.warmup(0.3, 5, size=1)(0)) == np.float32(0.3)
    with pytest.raises(ValueError, match="warmup_steps=0"):
        hvd.schedules.warmup(0.1, 0)
