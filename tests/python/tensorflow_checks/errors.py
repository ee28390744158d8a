"""Variables, the gradient tape, and errors."""

from __future__ import annotations

import pytest

from tensorflow_checks import RANKS, both_ways, check


@check
def broadcast_variables_of_many_types() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    variables = [
        tf.Variable(tf.fill([2], float(rank))),
        tf.Variable(rank == 1),
        tf.Variable([rank, rank + 1], dtype=tf.int64),
        tf.Variable(tf.cast(rank, tf.uint8)),
        tf.Variable(tf.cast([rank], tf.bfloat16)),
    ]
    hvd.broadcast_variables(variables, root_rank=1)
    assert variables[0].numpy().tolist() == [1.0, 1.0]
    assert bool(variables[1].numpy()) is True
    assert variables[2].numpy().tolist() == [1, 2]
    assert int(variables[3].numpy()) == 1
    assert tf.cast(variables[4], tf.float32).numpy().tolist() == [1.0]
    text = tf.Variable("label", name="label")
    with pytest.raises(hvd.errors.InvalidRequestError, match='"label" has the type string'):
        hvd.broadcast_variables([variables[0], text], root_rank=0)
    assert hvd.broadcast_([variables[0]], 0)[0] is variables[0]


@check
def objects_of_all_ranks() -> None:
    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    assert hvd.broadcast_object({"rank": rank}, root_rank=1) == {"rank": 1}
    assert hvd.allgather_object("x" * rank, name="texts") == ["", "x"]


@check
def tape_passes_on_what_is_local_or_missing() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    a, b, c = (tf.Variable(float(hvd.rank() + 1)) for _ in range(3))
    with hvd.DistributedGradientTape(tf.GradientTape(), gradient_predivide_factor=2.0) as tape:
        loss = a * a + b * b
    tape.register_local_source(b)
    of_a, (of_b, of_c) = tape.gradient(loss, (a, [b, c]))
    assert float(of_a) == 3.0  # the mean of 2 and 4
    assert float(of_b) == 2.0 * (hvd.rank() + 1) / RANKS
    assert of_c is None
    with pytest.raises(ValueError, match="Average or Sum"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Max)
    with pytest.raises(ValueError, match="listed twice"):
        hvd.DistributedGradientTape(tf.GradientTape(), groups=[[a], [a]])


@check
def keras_optimizers_are_wrapped_from_here_too() -> None:
    import keras

    import syrtos.tensorflow as hvd

    optimizer = keras.optimizers.SGD(1.0)
    assert hvd.DistributedOptimizer(optimizer, op=hvd.Sum) is optimizer
    variable = keras.Variable([0.0])
    optimizer.apply([keras.ops.convert_to_tensor([1.0 + hvd.rank()])], [variable])
    assert variable.numpy().tolist() == [-3.0]


@check
def tape_splits_gradients_into_groups() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    variables = [tf.Variable(tf.fill([i], float(hvd.rank() + 1))) for i in range(7)]
    for options in ({"num_groups": 3}, {"groups": [[variables[6], variables[0]], [variables[2]]]}):
        with hvd.DistributedGradientTape(tf.GradientTape(), **options) as tape:
            loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
        for i, gradient in enumerate(tape.gradient(loss, variables)):
            assert gradient.numpy().tolist() == [3.0] * i


@check
def disagreements_are_raised_on_all_ranks_and_the_next_call_works() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    failed, invalid = tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError
    cases = [
        (lambda: hvd.allreduce(tf.ones([4, 7 + rank])), failed, r"shape.*\(4, 8\).*\(4, 7\)"),
        (lambda: hvd.allreduce(tf.cast([1], "int32" if rank else "int64")), failed, "dtype"),
        (lambda: hvd.allreduce(tf.ones(2), op=rank), failed, "op="),
        (lambda: hvd.broadcast(tf.ones(2), rank), failed, "root"),
        (lambda: hvd.allgather(tf.ones([1, 2 + rank])), failed, "shape"),
        (lambda: hvd.allgather(tf.ones([])), invalid, "scalar"),
        (lambda: hvd.allreduce(tf.constant([True])), invalid, "bool"),
        (lambda: hvd.broadcast(tf.ones(2), 7), invalid, "root_rank 7"),
        (lambda: hvd.alltoall(tf.ones([3])), invalid, "split"),
    ]
    for function, error, text in cases:
        for way in both_ways(function):
            with pytest.raises(error, match=text):
                way()
            assert hvd.allreduce(tf.ones([1]), op=hvd.Sum).numpy() == [RANKS]


@check
def own_mistakes_are_value_errors() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    with pytest.raises(ValueError, match="say the same thing twice"):
        hvd.allreduce(tf.ones([1]), average=True, op=hvd.Sum)
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(tf.ones([1]), average=False).numpy() == [RANKS]
    with pytest.raises(ValueError, match="type string"):
        hvd.allreduce(tf.constant("text"))
    with pytest.raises(TypeError, match="list or tuple"):
        hvd.grouped_allreduce(tf.ones([2]))
    with pytest.raises(TypeError, match="ProcessSet"):
        hvd.allreduce(tf.ones([1]), process_set=[0])
    with pytest.raises(ValueError, match="cannot be used"):
        hvd.allreduce(tf.ones([1]), process_set=hvd.ProcessSet([0]))
    made_up = hvd.ProcessSet([0])
    made_up.process_set_id = 77
    with pytest.raises(ValueError, match="there is no process set 77"):
        hvd.allreduce(tf.ones([1]), process_set=made_up)


@check
def variables_are_paired_by_their_names() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    variables = [tf.Variable(10.0 * i + rank, name=f"of_{'abc'[i]}") for i in range(3)]
    turned = variables[rank:] + variables[:rank]
    for way in both_ways(lambda: hvd.grouped_allreduce(turned, op=hvd.Sum)):
        expected = [20.0 * i + 1 for i in range(3)]
        assert [float(total) for total in way()] == expected[rank:] + expected[:rank]
    # Where names do not tell tensors apart, another order is an error that names both.
    names = ["x", "x", "y"] if rank == 0 else ["x", "y", "x"]
    for way in both_ways(lambda: hvd.grouped_allreduce(turned, tensor_names=names)):
        with pytest.raises(tf.errors.FailedPreconditionError, match='"y".*same order'):
            way()


@check
def many_ops_in_flight_from_many_threads() -> None:
    import threading

    import tensorflow as tf

    import syrtos.tensorflow as hvd

    wrong: list[str] = []

    def work(index: int) -> None:
        for _ in range(25):
            y = hvd.allreduce(tf.fill([index + 1], float(index)), op=hvd.Sum, name=f"t{index}")
            if y.numpy().tolist() != [2.0 * index] * (index + 1):
                wrong.append(f"t{index}: {y}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@check
def a_rank_that_shuts_down_fails_the_others() -> None:  # the last: it ends the engine
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    if hvd.rank() == 1:
        hvd.shutdown()
    else:
        with pytest.raises(tf.errors.AbortedError, match="shut down"):
            hvd.allreduce(tf.ones([1]))
        hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match="init"):
        hvd.allreduce(tf.ones([1]))
    with pytest.raises(tf.errors.FailedPreconditionError, match="init"):
        hvd.size_op()
