"""Gradient tapes with all their options, local gradient aggregation, late variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorflow_checks import RANKS, both_ways, check


@check
def options_of_the_tape_do_not_change_the_mean() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    dense = [tf.Variable(tf.fill([i + 1], float(rank + 1))) for i in range(5)]
    table = tf.Variable(tf.ones([4, 2]))
    for options in (
        {},
        {"groups": 2},
        {"num_groups": 100},
        {"groups": []},
        {"groups": [[dense[3], table], [dense[0]]]},
        {"sparse_as_dense": True},
        {"gradient_predivide_factor": 2.0, "sparse_as_dense": True},
        {"compression": hvd.Compression.bf16, "groups": 3},
        {"op": hvd.Sum},
        {"device_dense": "/cpu:0", "device_sparse": "/cpu:0"},
    ):

        def gradients(options: Any = options) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(v * v) for v in dense])
                loss += (rank + 1.0) * tf.reduce_sum(tf.gather(table, [rank, 3]))
            # As in Horovod's examples: wrapped once it has recorded.
            tape = hvd.DistributedGradientTape(tape, **options)
            assert isinstance(tape, tf.GradientTape)
            return tape.gradient(loss, [*dense, table])

        times = RANKS if options.get("op") == hvd.Sum else 1
        rows = np.array([[0.5] * 2, [1.0] * 2, [0.0] * 2, [1.5] * 2]) * times
        for way in both_ways(gradients):
            results = way()
            for i, result in enumerate(results[:-1]):
                assert result.numpy().tolist() == [3.0 * times] * (i + 1)
            sparse = isinstance(results[-1], tf.IndexedSlices)
            assert sparse is not options.get("sparse_as_dense", False)
            np.testing.assert_array_equal(tf.convert_to_tensor(results[-1]).numpy(), rows)


@check
def local_and_shared_gradients_come_apart() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    shared, table = tf.Variable(rank + 1.0), tf.Variable(tf.ones([3, 2]))
    for scale in (True, False):
        with tf.GradientTape(persistent=True) as plain:
            loss = shared * shared + (rank + 1.0) * tf.reduce_sum(tf.gather(table, [rank]))
        tape = hvd.DistributedGradientTape(plain, scale_local_gradients=scale)
        tape.register_local_source(table)
        local, everywhere = tape.get_local_and_global_gradients(loss, [table, shared])
        assert [source is table for source, _ in local] == [True]
        assert isinstance(local[0][1], tf.IndexedSlices)
        own = (rank + 1.0) / (RANKS if scale else 1)
        assert local[0][1].values.numpy().tolist() == [[own, own]]
        assert [(source is shared, float(grad)) for source, grad in everywhere] == [(True, 3.0)]
        assert {v.ref() for v in tape.watched_variables()} == {shared.ref(), table.ref()}
        assert tape.jacobian(loss, shared).numpy() == 2.0 * (rank + 1)  # this rank's own


@check
def a_distributed_tape_records_like_a_plain_one() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    x = tf.constant([[hvd.rank() + 1.0]])
    with hvd.DistributedGradientTape(tf.GradientTape(watch_accessed_variables=False)) as tape:
        tape.watch(x)
        y = x * x
        with tape.stop_recording():
            z = x * x * x
    assert tape.watched_variables() == ()
    assert tape.gradient([y, z], [x])[0].numpy().tolist() == [[3.0]]
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        tape.watch(x)
        unused = 5.0 * x
        tape.reset()
        tape.watch(x)
        y = tf.concat([x * x, 2.0 * x], 1)
    assert tape.gradient(unused, x) is None
    assert tape.batch_jacobian(y, x).numpy().tolist() == [[[2.0 * (hvd.rank() + 1)], [2.0]]]
    assert tape.gradient({"a": y}, {"x": x})["x"].numpy().tolist() == [[5.0]]


@check
def gradients_of_local_layers_stay_on_their_rank() -> None:
    import keras
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    model = keras.Sequential(
        [
            keras.layers.Dense(2, kernel_initializer=keras.initializers.Constant(0.5 + rank)),
            keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(1.0 + rank)),
        ]
    )
    model.build([None, 3])
    x = tf.fill([4, 3], rank + 1.0)

    def loss_and(tape: Any) -> Any:
        with tape:
            return tf.reduce_sum(model(x))

    weights = model.trainable_weights
    plain = tf.GradientTape()
    loss = loss_and(plain)
    own = [grad.numpy() for grad in plain.gradient(loss, [v.value for v in weights])]
    means = [sum(hvd.allgather_object(grad)) / RANKS for grad in own]
    for layers, local in ((None, 0), (model.layers[0], 2), (model.layers, 4)):
        tape = hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=layers)
        grads = tape.gradient(loss_and(tape), weights)
        for i, grad in enumerate(grads):
            expected = own[i] / RANKS if i < local else means[i]
            np.testing.assert_allclose(grad.numpy(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="is no layer"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[weights[0]])


@check
def only_members_of_a_process_set_reduce() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    alone = hvd.add_process_set([1])
    try:
        v = tf.Variable(rank + 1.0)

        def gradient() -> Any:
            with hvd.DistributedGradientTape(
                tf.GradientTape(), op=hvd.Sum, process_set=alone
            ) as tape:
                loss = v * v
            return tape.gradient(loss, v)

        for way in both_ways(gradient):
            assert float(way()) == 2.0 * (rank + 1)
        numbers = (
            hvd.size_op(alone.process_set_id),
            hvd.process_set_included_op(alone.process_set_id),
        )
        assert [int(number) for number in numbers] == [1, rank]
        if alone.included():
            for way in both_ways(lambda: hvd.allgather([[7.0]], process_set=alone)):
                assert way().numpy().tolist() == [[7.0]]
            slices = tf.IndexedSlices(tf.ones([1, 2]), [2], [4, 2])
            mean = hvd.allreduce(slices, process_set=alone)
            assert mean.values.numpy().tolist() == [[1.0, 1.0]]
    finally:
        hvd.remove_process_set(alone)


@check
def gradients_are_summed_over_batches_eagerly_and_in_functions() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd
    from syrtos.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
    from syrtos.tensorflow.optimizer import GradientReducer

    rank = hvd.rank()
    for graph in (False, True):
        shared, own, unused = (tf.Variable(0.0) for _ in range(3))
        variables = [shared, own, unused]
        helper = LocalGradientAggregationHelperEager(
            backward_passes_per_step=2,
            allreduce_func=GradientReducer().reduce,
            sparse_as_dense=False,
            average_aggregated_gradients=True,
        )
        helper.register_local_var(own)

        class Optimizer:
            iterations = tf.Variable(0)

        optimizer = Optimizer()
        optimizer.iterations = tf.Variable(0)

        def step(
            x: Any, helper: Any = helper, variables: Any = variables, optimizer: Any = optimizer
        ) -> None:
            grads = helper.compute_gradients([x, 10.0 * x, None], variables)
            assert grads[2] is None

            def apply() -> None:
                optimizer.iterations.assign_add(1)
                for variable, grad in zip(variables[:2], grads[:2], strict=True):
                    variable.assign_sub(grad)

            helper.apply_gradients(apply, optimizer)

        run = tf.function(step) if graph else step
        for number in range(5):
            run(tf.constant(rank + 1.0 + number))
            rounds = (number + 1) // 2
            assert int(helper.counter) == (number + 1) % 2
            assert int(optimizer.iterations) == number + 1
            # Two batches of x, x + 1: their mean, over the ranks too, is 2 in the first round.
            assert float(shared) == -sum(2.0 + 2 * k for k in range(rounds))
            assert float(own) == -sum(5.0 * (rank + 1.5 + 2 * k) for k in range(rounds))
    with pytest.raises(ValueError, match="sparse_as_dense=True"):
        helper.compute_gradients([tf.IndexedSlices(tf.ones([1]), [0], [1]), 1.0, None], variables)


@check
def variables_that_come_with_the_first_batch_can_be_broadcast() -> None:
    import keras
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    keras.utils.set_random_seed(rank)
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.1)

    @tf.function
    def step(x: Any, first: bool) -> None:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean(tf.square(model(x) - 1.0))
        optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
        if first:
            hvd.broadcast_variables(model.weights + optimizer.variables, root_rank=0)

    for number in range(3):
        step(tf.fill([2, 4], 0.5 + rank + number), number == 0)
        mine = [np.asarray(v) for v in (*model.weights, *optimizer.variables)]
        roots = hvd.broadcast_object(mine, root_rank=0)
        assert len(roots) >= 4 + 2 * 4
        for value, root in zip(mine, roots, strict=True):
            np.testing.assert_array_equal(value, root)


@check
def elastic_states_are_synchronised_restored_and_saved() -> None:
    import keras
    import tensorflow as tf

    import syrtos.tensorflow as hvd
    from tensorflow_checks.sessions import session_of_new_graph

    rank = hvd.rank()

    def exercise(state: Any, read: Any, write: Any) -> None:
        state.sync()
        assert (state.step, read()) == (5, 0.0)
        write(7.0)
        state.step = 6
        state.restore()
        assert (state.step, read()) == (5, 0.0)
        write(8.0)
        state.commit()
        write(9.0)
        state.restore()
        assert read() == 8.0

    variable = tf.Variable([float(rank)])
    state = hvd.elastic.TensorFlowState([variable], step=5 + rank)
    exercise(state, lambda: float(variable[0]), lambda x: variable.assign([x]))
    with session_of_new_graph() as session:
        inside = tf.compat.v1.get_variable("v", initializer=float(rank), use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(step=5 + rank)
        session.graph.finalize()
        exercise(state, lambda: session.run(inside), lambda x: inside.load(x, session))
    model = keras.Sequential([keras.layers.Dense(1, bias_initializer="zeros")])
    with pytest.raises(ValueError, match="not built"):
        hvd.elastic.TensorFlowKerasState(model)
    model.build([None, 2])
    model.compile(keras.optimizers.Adam(0.1 * (rank + 1)))
    bias = model.layers[0].bias
    bias.assign([float(rank)])
    state = hvd.elastic.TensorFlowKerasState(model, step=5 + rank)
    exercise(state, lambda: float(bias.numpy()[0]), lambda x: bias.assign([x]))
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no variables"):
        hvd.elastic.TensorFlowState([])


@check
def a_lost_rank_lets_elastic_training_start_again() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    lost = tf.errors.AbortedError(None, None, "rank 1 died [Op:SyrtosAllreduce]")
    foreign = tf.errors.AbortedError(None, None, "something else was aborted")

    @hvd.elastic.run
    def fail(state: Any, error: Exception) -> None:
        raise error

    with pytest.raises(tf.errors.AbortedError, match="something else"):
        fail(hvd.elastic.TensorFlowState([tf.Variable(0.0)]), foreign)

    starts = []

    @hvd.elastic.run
    def train(state: Any) -> int:
        starts.append(int(state.variables[0]))
        state.variables[0].assign(50)
        if len(starts) == 1:
            raise lost
        return hvd.size()

    assert train(hvd.elastic.TensorFlowState([tf.Variable(3 + hvd.rank())])) == RANKS
    assert starts == [3, 3]
