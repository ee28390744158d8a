"""`DistributedOptimizer`, one update at a time: what is reduced, how, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_checks import RANKS, assert_same_on_all_ranks, flat, optimizer_check


def update(optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
    """Apply gradients; Keras on JAX cannot scale losses but in its stateless form."""
    import keras

    gradients = [keras.ops.convert_to_tensor(gradient) for gradient in gradients]
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if not scales or keras.backend.backend() != "jax":
        optimizer.apply(gradients, variables)
        return
    if not optimizer.built:
        optimizer.build(variables)
    states = [optimizer.variables, variables]
    of_optimizer, weights = ([one.value for one in state] for state in states)
    results = optimizer.stateless_apply(of_optimizer, gradients, weights)
    for state, values in zip(reversed(states), results, strict=True):
        for one, value in zip(state, values, strict=True):
            one.assign(value)


def applied(optimizer: Any, gradients: list[list[float]], start: list[float]) -> Any:
    """The value of a variable after one update by this rank's gradient."""
    import keras

    import syrtos.keras as hvd

    variable = keras.Variable(np.array(start, "float32"))
    update(optimizer, [gradients[hvd.rank()]], [variable])
    return keras.ops.convert_to_numpy(variable)


def zeros(*shape: int) -> Any:
    import keras

    return keras.Variable(np.zeros(shape, "float32"))


@optimizer_check
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


@optimizer_check
def every_optimizer_updates_by_the_averaged_gradient() -> None:
    import keras

    import syrtos.keras as hvd

    gradients = [[1.0, -2.0], [3.0, 6.0]]
    mean = [[2.0, 2.0]] * RANKS
    for name in "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax Nadam Ftrl Lion Lamb".split():
        kind = getattr(keras.optimizers, name)
        optimizer = kind(learning_rate=0.1)
        kind = type(optimizer)  # on torch Keras has its own
        assert hvd.DistributedOptimizer(optimizer) is optimizer
        assert type(optimizer) is kind
        again = kind.from_config(optimizer.get_config())
        result = applied(optimizer, gradients, [1.0, 1.0])
        assert result.tobytes() == applied(again, mean, [1.0, 1.0]).tobytes(), name


@optimizer_check
def sum_compression_groups_and_predivide() -> None:
    import keras

    import syrtos.keras as hvd
    from keras_checks.optimizer_matrix import requests

    variables = [zeros(i) for i in range(4)]
    lists = [variables[:2], variables[3:]]
    for options, expected, number in (
        ({}, -2.0, 1),
        ({"op": hvd.Sum}, -4.0, 1),
        ({"compression": hvd.Compression.fp16}, -2.0, 1),
        ({"compression": hvd.Compression.bf16}, -2.0, 1),
        ({"gradient_predivide_factor": 2.0}, -2.0, 1),
        ({"num_groups": 2}, -2.0, 2),
        ({"groups": 3}, -2.0, 3),
        ({"groups": lists}, -2.0, 3),  # the variables outside of the lists are the third
    ):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **options)
        for variable in variables:
            variable.assign(variable * 0)
        gradients = [keras.ops.full((i,), 1.0 + 2.0 * hvd.rank()) for i in range(4)]
        before = requests()
        optimizer.apply(gradients, variables)
        assert requests() - before == number, options
        np.testing.assert_array_equal(flat(variables), np.full(6, expected))


@optimizer_check
def compression_rounds_what_travels() -> None:
    import keras

    import syrtos.keras as hvd

    value = 1.0 + 2.0**-12
    for compression, expected in (
        (hvd.Compression.none, value),
        (hvd.Compression.fp16, 1.0),
        (hvd.Compression.bf16, 1.0),
    ):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=compression)
        assert applied(optimizer, [[value]] * RANKS, [0.0]) == [-expected]


@optimizer_check
def a_process_set_leaves_the_others_alone() -> None:
    import keras

    import syrtos.keras as hvd

    alone = hvd.add_process_set([0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=alone)
    scaled = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1.0)
    result = applied(scaled, [[1.0], [3.0]], [0.0])
    assert result == [[-1.0], [-3.0]][hvd.rank()]
    hvd.remove_process_set(alone)


@optimizer_check
def local_variables_keep_their_own_gradient() -> None:
    import keras

    import syrtos.keras as hvd

    for scale in (True, False):
        optimizer = keras.optimizers.SGD(1.0)
        hvd.DistributedOptimizer(optimizer, scale_local_gradients=scale)
        shared, local = zeros(1), zeros(1)
        optimizer.register_local_var(local)
        optimizer.apply([keras.ops.ones((1,)) * (hvd.rank() + 1)] * 2, [shared, local])
        assert flat([shared]) == [-1.5]
        assert flat([local]) == [-(hvd.rank() + 1) / (RANKS if scale else 1)]


@optimizer_check
def missing_gradients_stay_missing() -> None:
    import keras

    import syrtos.keras as hvd

    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    unused, used, local = zeros(4), zeros(2), zeros(2)
    optimizer.register_local_var(local)
    gradient = keras.ops.ones((2,)) * (1.0 + hvd.rank())
    optimizer.apply([None, gradient, gradient], [unused, used, local])
    assert flat([unused]).tolist() == [0.0] * 4
    assert flat([used]).tolist() == [-1.5] * 2
    assert flat([local]).tolist() == [-(hvd.rank() + 1) / RANKS] * 2


@optimizer_check
def ranks_with_gradients_for_other_variables_get_an_error() -> None:
    import keras

    import syrtos.keras as hvd

    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    variables = [
        keras.Variable(np.zeros(2, "float32"), name=name) for name in ("first", "second", "third")
    ]
    optimizer.build(variables)
    gradients = [keras.ops.ones((2,)) for _ in variables]
    gradients[hvd.rank()] = None
    with pytest.raises(Exception, match="(?s)first.*second|second.*first"):
        optimizer.apply(gradients, variables)
    # Ranks with more of them are told which one the others lack.
    gradients = [keras.ops.ones((2,)) for _ in variables]
    if hvd.rank() == 1:
        gradients[1] = None
    with pytest.raises(Exception, match="second"):
        optimizer.apply(gradients, variables)
    assert flat(variables).tolist() == [0.0] * 6
    optimizer.apply([keras.ops.ones((2,)) for _ in variables], variables)  # the next one works
    assert flat(variables).tolist() == [-1.0] * 6


@optimizer_check
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


@optimizer_check
def variables_that_their_gradients_overwrite_take_the_largest() -> None:
    """Such as the histories and scales of float8; with several batches, the largest of all."""
    import keras

    import syrtos.keras as hvd

    def step(optimizer: Any, value: float) -> list[float]:
        gradient = keras.ops.convert_to_tensor([value + hvd.rank(), -value - hvd.rank()])
        optimizer.apply([gradient, keras.ops.ones((2,))], [history, weight])
        return list(flat([history]))

    for passes, expected in (
        (None, [[2.0, -1.0], [4.0, -3.0], [3.0, -2.0]]),
        (3, [[7.0, 7.0], [7.0, 7.0], [4.0, 0.0]]),  # what is kept begins with zeros
    ):
        history, weight = keras.Variable(np.full(2, 7.0, "float32")), zeros(2)
        history.overwrite_with_gradient = True
        optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=passes)
        hvd.DistributedOptimizer(optimizer)
        assert [step(optimizer, value) for value in (1.0, 3.0, 2.0)] == expected
        assert_same_on_all_ranks([history, weight])


@optimizer_check
def the_parts_of_a_multi_optimizer_reduce() -> None:
    import keras

    import syrtos.keras as hvd

    if not hasattr(keras.optimizers, "MultiOptimizer"):
        return
    sgd, slow = keras.optimizers.SGD(1.0), keras.optimizers.SGD(0.5, global_clipnorm=1.0)
    made = keras.optimizers.SGD(0.25)

    def chosen_late(variable: Any) -> Any:
        return made if "late" in variable.path else sgd

    known = keras.optimizers.OptimizerMap(sgd, {"late": slow})
    for choice, expected in ((known, -0.5), (chosen_late, -0.5)):
        optimizer = keras.optimizers.MultiOptimizer(choice)
        hvd.DistributedOptimizer(optimizer)
        variables = [keras.Variable([0.0], name=name) for name in ("early", "late")]
        optimizer.apply([keras.ops.ones((1,)) * (1.0 + 2.0 * hvd.rank())] * 2, variables)
        assert flat(variables).tolist() == [-2.0, expected]
        sgd = keras.optimizers.SGD(1.0)
    with pytest.raises(ValueError, match="accumulates nothing itself"):
        hvd.DistributedOptimizer(
            keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(made)),
            backward_passes_per_step=2,
        )


@optimizer_check
def an_apply_that_bypasses_keras_is_told_of() -> None:
    import keras

    import syrtos.keras as hvd

    class Own(keras.optimizers.Optimizer):  # type: ignore[misc]
        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            for gradient, variable in zip(grads, trainable_variables, strict=True):
                variable.assign(variable - gradient)

    optimizer = hvd.DistributedOptimizer(Own(0.1))
    with pytest.raises(ValueError, match=r"Own\.apply used its gradients"):
        applied(optimizer, [[1.0]] * RANKS, [0.0])


@optimizer_check
def wrong_arguments_are_refused() -> None:
    import keras

    import syrtos.keras as hvd

    with pytest.raises(TypeError, match="Keras 3 optimizer, not str"):
        hvd.DistributedOptimizer("adam")
    for options, text in (
        ({"op": hvd.Max}, "Average or Sum"),
        ({"op": hvd.Adasum}, "Average or Sum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "needs op=Average"),
        ({"num_groups": -1}, "num_groups=-1"),
        ({"groups": -1}, "list of lists"),
        ({"backward_passes_per_step": 0}, "1 or more"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(keras.optimizers.SGD(), **options)
    with pytest.raises(ValueError, match=r"no keras\.layers\.Layer"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[3])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD())
    for again in (optimizer, keras.optimizers.LossScaleOptimizer(optimizer)):
        with pytest.raises(ValueError, match="distributed already"):
            hvd.DistributedOptimizer(again)


@optimizer_check
def an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    import keras

    import syrtos.keras as hvd

    for outside in (True, False):
        optimizer = keras.optimizers.SGD(1.0)
        if not outside:
            hvd.DistributedOptimizer(optimizer)
        wrapper = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)
        if outside:
            assert hvd.DistributedOptimizer(wrapper) is wrapper
        variable = keras.Variable([0.0])
        seen = []
        for value in (8.0, np.inf, 4.0):
            mine = value if hvd.rank() == 1 else 8.0
            update(wrapper, [[mine]], [variable])
            seen.append((float(flat([variable])[0]), float(flat([wrapper.dynamic_scale])[0])))
        # 8 / 8, skipped, the mean of 8 / 4 and 4 / 4
        assert seen == [(-1.0, 8.0), (-1.0, 4.0), (-2.5, 4.0)]
        assert int(optimizer.iterations) == 2


@optimizer_check
def other_loss_scale_optimizers_stay_as_they_are() -> None:
    import keras

    import syrtos.keras as hvd

    wrapper = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=2.0)
    if hvd.rank() == 0:  # on one rank: nothing is agreed on
        variable = keras.Variable([0.0])
        update(wrapper, [[2.0]], [variable])
        assert flat([variable]) == [-1.0]


@optimizer_check
def rows_of_embeddings_are_gathered_or_become_dense() -> None:
    import keras

    import syrtos.keras as hvd

    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    rank = hvd.rank()
    for name, options in (
        ("SGD", {}),
        ("SGD", {"global_clipnorm": 0.5}),
        ("SGD", {"clipnorm": 0.5}),
        ("SGD", {"clipvalue": 0.2}),
        ("Adam", {}),
        ("SGD", {"gradient_accumulation_steps": 2}),
    ):
        rows = [[one, 3, 3] for one in range(RANKS)]
        joined = tf.IndexedSlices(tf.ones([6, 1]) / 2, sum(rows, []), tf.constant([4, 1]))
        for as_dense in (True, False):
            results = []
            for distributed in (False, True):
                optimizer = getattr(keras.optimizers, name)(0.5, **options)
                table = zeros(4, 1)
                gradient: Any = tf.convert_to_tensor(joined) if as_dense else joined
                if distributed:
                    hvd.DistributedOptimizer(optimizer, sparse_as_dense=as_dense)
                    gradient = tf.IndexedSlices(tf.ones([3, 1]), rows[rank], joined.dense_shape)
                for _ in range(2):
                    optimizer.apply([gradient], [table])
                assert flat([table]).any()
                results.append(flat([table]))
            np.testing.assert_allclose(results[1], results[0], atol=1e-6, err_msg=name)
