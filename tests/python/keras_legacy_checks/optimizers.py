"""`DistributedOptimizer` for Keras 2: against one process, and against formulas."""

from __future__ import annotations

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

STEPS, BATCH = 30, 32
KINDS = ("new", "legacy")


def kinds(kind: str) -> Any:
    """The module with the optimizers of this kind."""
    import tensorflow as tf

    return tf.keras.optimizers if kind == "new" else tf.keras.optimizers.legacy


def train(kind: str, name: str, options: dict[str, Any], distributed: bool) -> np.ndarray[Any, Any]:
    """The weights after some steps: on two ranks with half batches, or alone with whole ones."""
    import syrtos.keras as hvd

    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS * BATCH, 8)).astype("float32")
    y = (x @ rng.normal(size=(8, 1)) + rng.normal(size=(len(x), 1)) / 10).astype("float32")
    batch = BATCH
    optimizer = getattr(kinds(kind), name)(learning_rate=0.02, **options)
    if distributed:
        batch //= RANKS
        x, y = (
            a.reshape(STEPS, RANKS, batch, -1)[:, hvd.rank()].reshape(STEPS * batch, -1)
            for a in (x, y)
        )
        assert hvd.DistributedOptimizer(optimizer) is optimizer
    model = small_model()
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    if distributed:
        assert_same_on_all_ranks([*model.weights, *state_of(optimizer)])
        assert int(optimizer.iterations.numpy()) == STEPS
    return flat(model.weights)


@check
def two_ranks_train_like_one_process_with_the_joined_batch() -> None:
    for kind in KINDS:
        for name, options in (
            ("SGD", {"momentum": 0.9, "clipnorm": 0.1}),
            ("Adam", {}),
            ("Adam", {"global_clipnorm": 0.1}),
            *([("AdamW", {"clipvalue": 0.05, "use_ema": True})] if kind == "new" else []),
        ):
            own, alone = (train(kind, name, options, distributed) for distributed in (True, False))
            assert not np.allclose(alone, flat(small_model().weights), atol=1e-2)
            case = f"{kind} {name} {options}"
            np.testing.assert_allclose(own, alone, atol=1e-5, rtol=1e-5, err_msg=case)


def apply(optimizer: Any, pairs: list[tuple[Any, Any]]) -> None:
    """One update, eagerly."""
    optimizer.apply_gradients(pairs)


@check
def a_compiled_step_trains_like_any_other() -> None:
    import syrtos.keras as hvd

    for kind in KINDS:
        results = []
        for jit in (False, True):
            model = small_model()
            optimizer = hvd.DistributedOptimizer(kinds(kind).Adam(0.02, clipnorm=0.5))
            model.compile(optimizer, "mse", jit_compile=jit)
            model.fit(*data_of(hvd.rank()), batch_size=8, shuffle=False, verbose=0)
            assert_same_on_all_ranks([*model.weights, *state_of(optimizer)])
            results.append(flat(model.weights))
        np.testing.assert_allclose(results[1], results[0], atol=1e-5)


@check
def the_mean_is_clipped() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    gradients = [[3.0, 0.0], [0.0, 4.0]]  # mean [1.5, 2], norm 2.5
    for kind in KINDS:
        for option, expected in (
            ({"global_clipnorm": 1.0}, [-0.6, -0.8]),
            ({"clipnorm": 1.0}, [-0.6, -0.8]),
            ({"clipvalue": 1.75}, [-1.5, -1.75]),
        ):
            optimizer = hvd.DistributedOptimizer(kinds(kind).SGD(1.0, **option))
            variable = tf.Variable([0.0, 0.0])
            apply(optimizer, [(tf.constant(gradients[hvd.rank()]), variable)])
            np.testing.assert_allclose(variable.numpy(), expected, atol=1e-6)


@check
def every_optimizer_updates_by_the_averaged_gradient() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    gradients = [[1.0, -2.0], [3.0, 6.0]]
    for kind in KINDS:
        names = "SGD Adam RMSprop Adagrad Adadelta Adamax Nadam Ftrl".split()
        for name in [*names, *(["AdamW", "Lion", "Adafactor"] if kind == "new" else [])]:
            plain = getattr(kinds(kind), name)(learning_rate=0.1)
            optimizer = type(plain).from_config(plain.get_config())
            assert hvd.DistributedOptimizer(optimizer) is optimizer
            assert type(optimizer) is type(plain)
            ours, reference = tf.Variable([1.0, 1.0]), tf.Variable([1.0, 1.0])
            apply(optimizer, [(tf.constant(gradients[hvd.rank()]), ours)])
            apply(plain, [(tf.constant([2.0, 2.0]), reference)])
            assert ours.numpy().tobytes() == reference.numpy().tobytes(), (kind, name)
            assert optimizer.get_config() == plain.get_config()


@check
def minimize_and_gradient_tapes_reduce_once() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd
    import syrtos.tensorflow

    for kind in KINDS:
        optimizer = hvd.DistributedOptimizer(kinds(kind).SGD(1.0), op=hvd.Sum)
        variable = tf.Variable(0.0)
        optimizer.minimize(lambda v=variable: v * (1.0 + hvd.rank()), [variable])
        assert variable.numpy() == -3.0
        # Gradients that are reduced already are applied as they are.
        with tf.GradientTape() as tape:
            loss = variable * (1.0 + hvd.rank())
        tape = syrtos.tensorflow.DistributedGradientTape(tape, op=hvd.Sum)
        grads = tape.gradient(loss, [variable])
        optimizer.apply_gradients(
            zip(grads, [variable], strict=True), experimental_aggregate_gradients=False
        )
        assert variable.numpy() == -6.0


@check
def horovods_compute_gradients_reduces_once_too() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for passes in (1, 2):
        optimizer = hvd.DistributedOptimizer(
            kinds("new").SGD(1.0), op=hvd.Sum, backward_passes_per_step=passes
        )
        assert (optimizer._agg_helper is None) == (passes == 1)
        variable = tf.Variable(0.0)
        for _ in range(passes):
            pairs = optimizer._compute_gradients(
                lambda v=variable: v * (1.0 + hvd.rank()), [variable]
            )
            optimizer.apply_gradients(pairs)
        assert variable.numpy() == -3.0 * passes
        if passes > 1:
            assert int(optimizer._agg_helper.counter.numpy()) == 0


@check
def sum_compression_groups_predivide_and_missing_gradients() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for kind in KINDS:
        for options, expected in (
            ({"op": hvd.Sum}, -4.0),
            ({"compression": hvd.Compression.fp16}, -2.0),
            ({"gradient_predivide_factor": 2.0}, -2.0),
            ({"num_groups": 2}, -2.0),
        ):
            optimizer = hvd.DistributedOptimizer(kinds(kind).SGD(1.0), **options)
            variables = [tf.Variable(tf.zeros([i])) for i in range(4)]
            pairs = [(tf.fill([i], 1.0 + 2.0 * hvd.rank()), v) for i, v in enumerate(variables)]
            unused = tf.Variable([7.0])
            apply(optimizer, [*pairs, (None, unused)])
            np.testing.assert_array_equal(flat(variables), np.full(6, expected))
            assert unused.numpy() == [7.0]


@check
def sparse_gradients_stay_sparse_or_become_dense() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for kind in KINDS:
        for as_dense in (False, True):
            optimizer = hvd.DistributedOptimizer(kinds(kind).SGD(1.0), sparse_as_dense=as_dense)
            table = tf.Variable(tf.zeros([4, 1]))
            rows = [hvd.rank()] * (1 + hvd.rank()) + [3]  # of different lengths
            apply(optimizer, [(tf.IndexedSlices(tf.ones([len(rows), 1]), rows, [4, 1]), table)])
            assert table.numpy().ravel().tolist() == [-0.5, -1.0, 0.0, -1.0]


@check
def local_layers_keep_their_own_gradient() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for kind in KINDS:
        for scale in (True, False):
            for passes in (1, 2):
                shared, local = (tf.keras.layers.Dense(1, use_bias=False) for _ in range(2))
                shared.build((None, 1))
                local.build((None, 1))
                weights = [shared.kernel, local.kernel]
                before = flat(weights)
                optimizer = hvd.PartialDistributedOptimizer(
                    kinds(kind).SGD(1.0),
                    local_layers=local,
                    scale_local_gradients=scale,
                    backward_passes_per_step=passes,
                    average_aggregated_gradients=True,
                )
                for _ in range(passes):
                    apply(optimizer, [(tf.fill([1, 1], 1.0 + hvd.rank()), v) for v in weights])
                own = (hvd.rank() + 1) / (RANKS if scale else 1)
                np.testing.assert_allclose(flat(weights) - before, [-1.5, -own], atol=1e-6)
    with pytest.raises(ValueError, match="is not built"):
        hvd.PartialDistributedOptimizer(kinds("new").SGD(), local_layers=tf.keras.layers.Dense(1))
    with pytest.raises(ValueError, match="str is no layer"):
        hvd.PartialDistributedOptimizer(kinds("new").SGD(), local_layers=["dense"])


@check
def backward_passes_are_summed_or_averaged() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    for kind in KINDS:
        for average in (False, True):
            for traced in (False, True):
                optimizer = hvd.DistributedOptimizer(
                    kinds(kind).SGD(1.0),
                    backward_passes_per_step=2,
                    average_aggregated_gradients=average,
                    sparse_as_dense=True,
                )
                weight, table = tf.Variable(0.0), tf.Variable(tf.zeros([2, 1]))

                def step(grad: Any, optimizer: Any = optimizer, v: Any = (weight, table)) -> None:
                    sparse = tf.IndexedSlices(tf.reshape(grad, [1, 1]), [hvd.rank()], [2, 1])
                    optimizer.apply_gradients([(grad, v[0]), (sparse, v[1])])

                run = tf.function(step) if traced else step
                seen = []
                for batch in range(5):
                    run(tf.constant(float((batch + 1) * (hvd.rank() + 1))))
                    seen.append(float(weight.numpy()))
                # Batches 1+2 and 3+4, times the mean 1.5 of the ranks; the fifth waits.
                passes = 2 if average else 1
                first, second = -3 * 1.5 / passes, -10 * 1.5 / passes
                assert seen == [0.0, first, first, second, second]
                rows = [-10 * (row + 1) / RANKS / passes for row in range(2)]
                np.testing.assert_allclose(table.numpy().ravel(), rows)
                assert int(optimizer.iterations.numpy()) == 5  # it counts batches


@check
def accumulated_training_equals_the_joined_batch() -> None:
    import syrtos.keras as hvd

    rng = np.random.default_rng(3)
    x = rng.normal(size=(16 * 16, 8)).astype("float32")
    y = (x[:, :1] * 2).astype("float32")
    for kind in KINDS:
        model, alone = small_model(), small_model()
        optimizer = hvd.DistributedOptimizer(
            kinds(kind).SGD(0.1, momentum=0.9, global_clipnorm=0.1),
            backward_passes_per_step=4,
            average_aggregated_gradients=True,
        )
        model.compile(optimizer, "mse")
        alone.compile(kinds(kind).SGD(0.1, momentum=0.9, global_clipnorm=0.1), "mse")
        # Batches of 2 on each of 2 ranks, 4 of them for an update of 16.
        mine = x.reshape(-1, RANKS, 2, 8)[:, hvd.rank()].reshape(-1, 8)
        target = y.reshape(-1, RANKS, 2, 1)[:, hvd.rank()].reshape(-1, 1)
        model.fit(mine, target, batch_size=2, shuffle=False, verbose=0)
        alone.fit(x, y, batch_size=16, shuffle=False, verbose=0)
        np.testing.assert_allclose(flat(model.weights), flat(alone.weights), atol=1e-5)
        assert_same_on_all_ranks(model.weights)


@check
def ranks_skip_the_same_steps_of_a_scaled_loss() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    scaler = tf.keras.mixed_precision.LossScaleOptimizer
    for kind in KINDS:
        for inside in (True, False):
            for passes in (1, 2):
                options = {"backward_passes_per_step": passes}
                optimizer = kinds(kind).SGD(1.0)
                if inside:
                    optimizer = scaler(
                        hvd.DistributedOptimizer(optimizer, **options), initial_scale=8
                    )
                else:
                    optimizer = hvd.DistributedOptimizer(
                        scaler(optimizer, initial_scale=8), **options
                    )
                variable = tf.Variable(0.0)

                @tf.function
                def step(value: Any, optimizer: Any = optimizer, variable: Any = variable) -> None:
                    with tf.GradientTape() as tape:
                        loss = optimizer.get_scaled_loss(variable * value)
                    grads = optimizer.get_unscaled_gradients(tape.gradient(loss, [variable]))
                    optimizer.apply_gradients(zip(grads, [variable], strict=True))

                seen, scales = [], []
                # The overflow is rank 1's alone.
                for value in (1.0, 1.0, float("inf") if hvd.rank() == 1 else 1.0, 1.0, 1.0, 1.0):
                    step(tf.constant(value))
                    seen.append(float(variable.numpy()))
                    scales.append(float(optimizer.loss_scale.numpy()))
                if passes == 1:  # batch 3 is skipped
                    assert seen == [-1.0, -2.0, -2.0, -3.0, -4.0, -5.0]
                    assert scales == [8.0, 8.0, 4.0, 4.0, 4.0, 4.0]
                else:  # the update of batches 3 and 4 is skipped
                    assert seen == [0.0, -2.0, -2.0, -2.0, -2.0, -4.0]
                    assert scales == [8.0, 8.0, 8.0, 4.0, 4.0, 4.0]
                assert_same_on_all_ranks([variable, *state_of(optimizer)])


@check
def mixed_precision_trains_alike_on_all_ranks() -> None:
    import tensorflow as tf

    import syrtos.keras as hvd

    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        for kind in KINDS:
            model = small_model()
            model.compile(hvd.DistributedOptimizer(kinds(kind).Adam(0.02)), "mse")
            assert type(model.optimizer).__name__.startswith("LossScaleOptimizer")
            rng = np.random.default_rng(hvd.rank())
            x = rng.normal(size=(256, 8)).astype("float32")
            y = x[:, :1].copy()
            if hvd.rank() == 1:
                y[16:32] = np.inf
            before = flat(model.weights)
            model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
            after = flat(model.weights)
            assert np.isfinite(after).all()
            assert not np.allclose(before, after)
            scale = float(model.optimizer.loss_scale.numpy())
            assert scale < 2.0**15  # halved for each epoch's overflow at least
            assert len(set(hvd.allgather_object(scale))) == 1
            assert_same_on_all_ranks([*model.weights, *state_of(model.optimizer)])
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


@check
def wrong_arguments_are_named() -> None:
    import syrtos.keras as hvd
    import syrtos.tensorflow

    with pytest.raises(TypeError, match=r"TF_USE_LEGACY_KERAS is set.*not builtins.str"):
        hvd.DistributedOptimizer("adam")
    with pytest.raises(ValueError, match="backward_passes_per_step=0"):
        hvd.DistributedOptimizer(kinds("new").SGD(), backward_passes_per_step=0)
    with pytest.raises(ValueError, match="Average or Sum"):
        hvd.DistributedOptimizer(kinds("new").SGD(), op=hvd.Adasum)
    with pytest.raises(ValueError, match="needs op=Average"):
        hvd.DistributedOptimizer(kinds("new").SGD(), op=hvd.Sum, gradient_predivide_factor=2.0)
    optimizer = kinds("legacy").SGD()
    assert syrtos.tensorflow.DistributedOptimizer(optimizer) is optimizer
    assert hvd.DistributedOptimizer(optimizer) is optimizer  # a second time does nothing
