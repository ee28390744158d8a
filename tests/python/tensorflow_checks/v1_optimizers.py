"""Distributed optimizers of ``tf.compat.v1``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorflow_checks import RANKS, check
from tensorflow_checks.sessions import session_of_new_graph


def initialize(session: Any) -> None:
    import tensorflow as tf

    session.run(tf.compat.v1.global_variables_initializer())
    session.run(tf.compat.v1.local_variables_initializer())


@check
def momentum_in_a_graph_equals_numpy() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    v1 = tf.compat.v1
    for use_resource, options in (
        (True, {}),
        (False, {"compression": hvd.Compression.fp16}),
        (True, {"op": hvd.Sum}),
        (True, {"gradient_predivide_factor": 2.0, "groups": 2}),
    ):
        with session_of_new_graph() as session:
            x = v1.placeholder(tf.float32, [])
            w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=use_resource)
            unused = v1.get_variable("unused", initializer=5.0)
            base = v1.train.MomentumOptimizer(0.5, 0.5)
            optimizer = hvd.DistributedOptimizer(base, **options)
            assert isinstance(optimizer, v1.train.Optimizer)
            assert optimizer.get_name() == "DistributedMomentumOptimizer"
            step = v1.train.get_or_create_global_step()
            train = optimizer.minimize(
                tf.reduce_sum(w * w) * x, global_step=step, var_list=[w, unused]
            )
            initialize(session)
            weights, velocity = np.array([1.0, 2.0]), np.zeros(2)
            for number in range(3):
                session.run(train, {x: [0.5, 0.25][hvd.rank()]})
                mean = 2 * weights * (0.75 if options.get("op") == hvd.Sum else 0.375)
                velocity = 0.5 * velocity + mean
                weights = weights - 0.5 * velocity
                np.testing.assert_allclose(session.run(w), weights, rtol=2e-3)
                assert session.run(step) == number + 1
            assert session.run(unused) == 5.0
            assert optimizer.get_slot_names() == ["momentum"]
            slot = optimizer.get_slot(w, "momentum")
            np.testing.assert_allclose(session.run(slot), velocity, rtol=2e-3)
            assert slot.name in [variable.name for variable in optimizer.variables()]


@check
def gradients_of_local_variables_stay_on_their_rank() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    v1, rank = tf.compat.v1, hvd.rank()
    for scale in (True, False):
        with session_of_new_graph() as session:
            shared, own = (v1.get_variable(name, initializer=0.0) for name in ("shared", "own"))
            optimizer = hvd.DistributedOptimizer(
                v1.train.GradientDescentOptimizer(1.0), scale_local_gradients=scale
            )
            optimizer.register_local_var(own)
            train = optimizer.minimize((shared + own) * (rank + 1.0))
            initialize(session)
            session.run(train)
            expected = [-1.5, -(rank + 1.0) / (RANKS if scale else 1)]
            assert session.run([shared, own]) == expected


@check
def several_batches_make_one_update() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    v1, rank, passes = tf.compat.v1, hvd.rank(), 3
    for mean, sparse in ((True, False), (False, False), (True, True)):
        with session_of_new_graph() as session:
            x = v1.placeholder(tf.float32, [])
            w = v1.get_variable("w", initializer=np.zeros([4, 2], np.float32))
            unused = v1.get_variable("unused", initializer=1.0)
            optimizer = hvd.DistributedOptimizer(
                v1.train.GradientDescentOptimizer(1.0),
                backward_passes_per_step=passes,
                average_aggregated_gradients=mean,
                sparse_as_dense=sparse,
            )
            loss = tf.reduce_sum(tf.gather(w, [rank]) if sparse else w[rank]) * x
            step = v1.train.get_or_create_global_step()
            pairs = optimizer.compute_gradients(loss, [w, unused])
            assert pairs[1][0] is None
            train = optimizer.apply_gradients(pairs, global_step=step)
            initialize(session)
            expected = np.zeros([4, 2])
            for number in range(7):
                assert session.run(step) == number
                session.run(train, {x: float(number + 1)})
                count = session.run(optimizer._agg_helper.counter)
                assert count == (number + 1) % passes
                if count == 0:
                    total = sum(range(number - passes + 2, number + 2))
                    # Each rank changes its own row; the mean over the ranks halves that.
                    expected[:RANKS] -= total / RANKS / (passes if mean else 1)
                np.testing.assert_allclose(session.run(w), expected, rtol=1e-6)
            with pytest.raises(ValueError, match="second time"):
                optimizer.compute_gradients(loss, [w])


@check
def sums_over_batches_have_their_refusals() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    v1 = tf.compat.v1
    base = v1.train.GradientDescentOptimizer(1.0)
    with session_of_new_graph():
        w = v1.get_variable("w", initializer=np.zeros([4, 2], np.float32))
        optimizer = hvd.DistributedOptimizer(base, backward_passes_per_step=2)
        with pytest.raises(ValueError, match="sparse_as_dense=True"):
            optimizer.compute_gradients(tf.reduce_sum(tf.gather(w, [0])), [w])
    for options, text in (
        ({"backward_passes_per_step": 0}, "backward_passes_per_step=0"),
        ({"op": hvd.Max}, "Average or Sum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "needs op=Average"),
        ({"groups": -1}, "groups=-1"),
        ({"num_groups": 2, "groups": [[w]]}, "give one"),
        ({"op": hvd.Adasum, "average_aggregated_gradients": True}, "no meaning"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(base, **options)


@check
def eager_optimizers_of_version_1_work_too() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    for passes in (1, 2):
        for graph in (False, True):
            w = tf.Variable([1.0, 2.0])
            other = tf.Variable(3.0)
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(0.5), backward_passes_per_step=passes
            )

            def step(x: Any, optimizer: Any = optimizer, w: Any = w, other: Any = other) -> None:
                optimizer.minimize(lambda: tf.reduce_sum(w) * x, var_list=[w, other])

            run = tf.function(step) if graph else step
            expected = np.array([1.0, 2.0])
            for number in range(4):
                run(tf.constant(rank + 1.0 + number))
                if passes == 1:
                    expected = expected - 0.5 * (1.5 + number)
                elif number % 2:
                    expected = expected - 0.5 * (2 * number + 2.0)
                np.testing.assert_allclose(w.numpy(), expected)
            assert float(other) == 3.0


def adasum(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    product = np.vdot(a, b)
    return (1 - product / (2 * np.vdot(a, a))) * a + (1 - product / (2 * np.vdot(b, b))) * b


def weights_by_adasum(passes: int, steps: int) -> list[list[np.ndarray[Any, Any]]]:
    """The weights of each rank after each step of gradient descent by 0.25."""
    start = np.array([1.0, -2.0])
    own = [start.copy() for _ in range(RANKS)]
    history = []
    for number in range(1, steps + 1):
        own = [w - 0.25 * np.array([rank + 1.0, rank * w[1]]) for rank, w in enumerate(own)]
        if number % passes == 0:
            start = start + adasum(*(w - start for w in own))
            own = [start.copy() for _ in range(RANKS)]
        history.append(own)
    return history


@check
def adasum_combines_what_the_ranks_have_changed() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    v1, rank = tf.compat.v1, hvd.rank()

    def loss_of(w: Any) -> Any:  # its gradient is (rank + 1, rank * w[1])
        return (rank + 1.0) * w[0] + rank * w[1] ** 2 / 2

    for passes in (1, 2):
        expected = weights_by_adasum(passes, 4)
        base = v1.train.GradientDescentOptimizer(0.25)
        for use_resource in (True, False):
            with session_of_new_graph() as session:
                # Other values on rank 1, until the broadcast.
                initial = np.array([1.0, -2.0]) + 3.0 * rank
                w = v1.get_variable("w", initializer=initial, use_resource=use_resource)
                optimizer = hvd.DistributedOptimizer(
                    base, op=hvd.Adasum, backward_passes_per_step=passes
                )
                train = optimizer.minimize(loss_of(w))
                broadcast = hvd.broadcast_global_variables(0)
                initialize(session)
                session.run(broadcast)
                for weights in expected:
                    session.run(train)
                    np.testing.assert_allclose(session.run(w), weights[rank], rtol=1e-12)
                assert len(optimizer.variables()) == 2
        w = tf.Variable([1.0, -2.0], dtype=tf.float64)
        optimizer = hvd.DistributedOptimizer(base, op=hvd.Adasum, backward_passes_per_step=passes)
        for weights in expected:
            optimizer.minimize(lambda w=w: loss_of(w), var_list=[w])
            np.testing.assert_allclose(w.numpy(), weights[rank], rtol=1e-12)


@check
def adasum_is_not_for_keras() -> None:
    import keras

    import syrtos.tensorflow as hvd

    with pytest.raises(ValueError, match="op=Adasum"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)
