"""`DistributedOptimizer`: order of clipping, accumulation, loss scaling, identity, saving."""

from __future__ import annotations

import copy
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_checks import RANKS, assert_same_on_all_ranks, check, flat, small_model


def applied(optimizer: Any, gradients: list[list[float]], start: list[float]) -> Any:
    """The value of a variable after one update by this rank's gradient."""
    import keras

    import syrtos.keras as hvd

    variable = keras.Variable(np.array(start, "float32"))
    optimizer.apply([keras.ops.convert_to_tensor(gradients[hvd.rank()])], [variable])
    return keras.ops.convert_to_numpy(variable)


@check
def the_mean_is_clipped() -> None:
    import keras

    import syrtos.keras as hvd

    gradients = [[3.0, 0.0], [0.0, 4.0]]  # mean [1.5, 2], norm 2.5
    for option, expected in (
        ({"global_clipnorm": 1.0}, [-0.6, -0.8]),
        ({"clipnorm": 1.0}, [-0.6, -0.8]),
        ({"clipvalue": 1.0}, [-1.0, -1.0]),
        ({"clipvalue": 1.75}, [-1.5, -1.75]),
    ):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0, **option))
        np.testing.assert_allclose(applied(optimizer, gradients, [0.0, 0.0]), expected, atol=1e-7)


@check
def every_optimizer_updates_by_the_averaged_gradient() -> None:
    import keras

    import syrtos.keras as hvd

    gradients = [[1.0, -2.0], [3.0, 6.0]]
    mean = [[2.0, 2.0]] * RANKS
    for name in "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax Nadam Ftrl Lion".split():
        kind = getattr(keras.optimizers, name)
        optimizer = kind(learning_rate=0.1)
        assert hvd.DistributedOptimizer(optimizer) is optimizer
        assert type(optimizer) is kind
        again = kind.from_config(optimizer.get_config())
        result = applied(optimizer, gradients, [1.0, 1.0])
        assert result.tobytes() == applied(again, mean, [1.0, 1.0]).tobytes(), name


@check
def sum_compression_groups_and_predivide() -> None:
    import keras

    import syrtos.keras as hvd

    for options, expected in (
        ({"op": hvd.Sum}, -4.0),
        ({"compression": hvd.Compression.fp16}, -2.0),
        ({"compression": hvd.Compression.bf16}, -2.0),
        ({"gradient_predivide_factor": 2.0}, -2.0),
        ({"num_groups": 2}, -2.0),
    ):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **options)
        variables = [keras.Variable(np.zeros(i, "float32")) for i in range(4)]
        gradients = [keras.ops.full((i,), 1.0 + 2.0 * hvd.rank()) for i in range(4)]
        optimizer.apply(gradients, variables)
        np.testing.assert_array_equal(flat(variables), np.full(6, expected))


@check
def local_variables_keep_their_own_gradient() -> None:
    import keras

    import syrtos.keras as hvd

    for scale in (True, False):
        optimizer = keras.optimizers.SGD(1.0)
        hvd.DistributedOptimizer(optimizer, scale_local_gradients=scale)
        shared, local = (keras.Variable(np.zeros(1, "float32")) for _ in range(2))
        optimizer.register_local_var(local)
        optimizer.apply([keras.ops.ones((1,)) * (hvd.rank() + 1)] * 2, [shared, local])
        assert flat([shared]) == [-1.5]
        assert flat([local]) == [-(hvd.rank() + 1) / (RANKS if scale else 1)]


@check
def sparse_gradients_become_dense_and_missing_ones_stay_missing() -> None:
    import keras
    import tensorflow as tf

    import syrtos.keras as hvd

    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    table, other, unused = (keras.Variable(np.zeros((4, 1), "float32")) for _ in range(3))
    slices = tf.IndexedSlices(tf.ones([2, 1]), [hvd.rank(), 3], [4, 1])
    optimizer.apply([slices, tf.ones([4, 1]), None], [table, other, unused])
    assert flat([table]).tolist() == [-0.5, -0.5, 0.0, -1.0]
    assert flat([other]).tolist() == [-1.0] * 4
    assert flat([unused]).tolist() == [0.0] * 4


@check
def backward_passes_are_summed_or_averaged() -> None:
    import keras

    import syrtos.keras as hvd

    mean = 1.5  # of 1 and 2
    for averaged, factor in ((False, 2), (True, 1)):
        optimizer = keras.optimizers.SGD(1.0)
        hvd.DistributedOptimizer(
            optimizer, backward_passes_per_step=2, average_aggregated_gradients=averaged
        )
        variable = keras.Variable(0.0)
        seen = []
        for _ in range(5):
            optimizer.apply([keras.ops.convert_to_tensor(hvd.rank() + 1.0)], [variable])
            seen.append(float(flat([variable])[0]))
        step = -mean * factor
        assert seen == [0.0, step, step, 2 * step, 2 * step]
    keras_own = keras.optimizers.SGD(1.0, gradient_accumulation_steps=3)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=3"):
        hvd.DistributedOptimizer(keras_own, backward_passes_per_step=2)
    built = keras.optimizers.SGD(1.0)
    built.build([keras.Variable(0.0)])
    with pytest.raises(ValueError, match="not built yet"):
        hvd.DistributedOptimizer(built, backward_passes_per_step=2)


@check
def wrong_arguments_are_refused() -> None:
    import keras

    import syrtos.keras as hvd

    with pytest.raises(TypeError, match="Keras 3 optimizer, not str"):
        hvd.DistributedOptimizer("adam")
    for options, text in (
        ({"op": hvd.Max}, "Average or Sum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "needs op=Average"),
        ({"num_groups": -1}, "num_groups=-1"),
        ({"groups": -1}, "list of lists"),
        ({"backward_passes_per_step": 0}, "1 or more"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(keras.optimizers.SGD(), **options)


@check
def a_copy_stays_distributed_and_wrapping_twice_does_nothing() -> None:
    import keras

    import syrtos.keras as hvd

    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    assert hvd.DistributedOptimizer(optimizer) is optimizer
    twin = copy.deepcopy(optimizer)
    assert twin._clip_gradients.__self__ is twin
    for one in (optimizer, twin):
        np.testing.assert_array_equal(applied(one, [[1.0], [3.0]], [0.0]), [-2.0])


@check
def an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    import keras

    import syrtos.keras as hvd

    def inside() -> Any:
        return keras.optimizers.LossScaleOptimizer(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), initial_scale=8.0
        )

    def outside() -> Any:
        wrapper = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=8.0)
        return hvd.DistributedOptimizer(wrapper)

    x = np.ones((12, 8), "float32")
    y = np.ones((12, 1), "float32")
    if hvd.rank() == 1:
        y[5] = np.inf  # in the second of three batches
    for make in (inside, outside):
        model = small_model()
        optimizer = make()
        model.compile(optimizer=optimizer, loss="mse")
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        assert float(optimizer.dynamic_scale) == 4.0
        assert int(optimizer.inner_optimizer.iterations) == 2
        assert np.isfinite(flat(model.weights)).all()
        assert_same_on_all_ranks([*model.weights, *optimizer.variables])


@check
def mixed_precision_wraps_the_optimizer_and_trains() -> None:
    import keras

    import syrtos.keras as hvd

    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = small_model()
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam()), loss="mse")
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        rng = np.random.default_rng(hvd.rank())
        x = rng.normal(size=(32, 8)).astype("float32")
        model.fit(x, x[:, :1], batch_size=8, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])


@check
def a_saved_model_is_plain_keras_and_can_be_wrapped_again() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    x, y = np.ones((16, 8), "float32"), np.ones((16, 1), "float32")
    model.fit(x, y, batch_size=4, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        text = zipfile.ZipFile(path).read("config.json").decode()
        plain = keras.saving.load_model(path)
        loaded = hvd.load_model(path)
    assert "syrtos" not in text.lower()
    saved = json.loads(text)["compile_config"]["optimizer"]
    assert (saved["module"], saved["class_name"]) == ("keras.optimizers", "Adam")
    assert type(plain.optimizer) is keras.optimizers.Adam
    assert int(plain.optimizer.iterations) == 4
    np.testing.assert_array_equal(flat(plain.weights), flat(model.weights))
    # The plain one trains alone, the wrapped one together with the others.
    different = np.full((16, 1), float(hvd.rank()), "float32")
    plain.fit(x, different, batch_size=4, verbose=0)
    loaded.fit(x, different, batch_size=4, verbose=0)
    assert int(loaded.optimizer.iterations) == 8
    assert_same_on_all_ranks(loaded.weights)
    of_ranks = hvd.allgather_object(flat(plain.weights).tobytes())
    assert of_ranks[0] != of_ranks[1]


@check
def ranks_with_other_layer_numbers_train_together() -> None:
    import keras

    import syrtos.keras as hvd

    if hvd.rank() == 0:
        small_model()  # its layers use up some automatic names
    model = small_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    x = np.full((8, 8), hvd.rank() + 1.0, "float32")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[callback])
    assert_same_on_all_ranks(model.weights)
