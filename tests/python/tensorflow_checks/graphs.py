"""Gradients, shapes, names and control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorflow_checks import RANKS, both_ways, check


def gradients_of(function: Callable[[Any], Any], x: Any) -> list[np.ndarray[Any, Any]]:
    """The gradient of the sum of function(x), computed eagerly and inside a graph."""
    import tensorflow as tf

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(function(x))
        return tape.gradient(y, x)

    return [way(x).numpy() for way in both_ways(gradient)]


@check
def gradients_have_horovods_form() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    x = tf.constant([1.0, 2.0])
    uneven = tf.ones([rank + 1, 3])
    is_root = float(rank == 0)
    cases = [
        (lambda x: hvd.allreduce(x, op=hvd.Average), x, [1.0, 1.0]),
        (lambda x: hvd.allreduce(x, op=hvd.Sum), x, [RANKS, RANKS]),
        (lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), x, [RANKS / 2] * 2),
        (hvd.allgather, uneven, np.ones([rank + 1, 3])),
        (lambda x: hvd.broadcast(x, 0), x, [is_root, is_root]),
        (hvd.alltoall, x, [1.0, 1.0]),
        (hvd.reducescatter, x, [1.0, 1.0]),
        (lambda x: hvd.reducescatter(x, op=hvd.Sum), x, [RANKS, RANKS]),
    ]
    for function, value, expected in cases:
        for gradient in gradients_of(function, value):
            np.testing.assert_array_equal(gradient, np.asarray(expected))


@check
def gradient_of_a_group_reaches_every_member() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    def function(x: Any) -> Any:
        a, b = hvd.grouped_allreduce([x, tf.cast(2.0 * x, tf.float64)], op=hvd.Average)
        return a + tf.cast(b, tf.float32)

    for gradient in gradients_of(function, tf.constant([1.0])):
        assert gradient == [3.0]
    for gradient in gradients_of(  # one member is not used
        lambda x: hvd.grouped_allreduce([x, 2 * x, tf.constant(1)])[0], tf.constant([1.0])
    ):
        assert gradient == [1.0]


@check
def there_is_no_gradient_of_a_maximum() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    x = tf.constant([1.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = hvd.allreduce(x, op=hvd.Max)
    with pytest.raises(NotImplementedError, match="op=Max"):
        tape.gradient(y, x)


@check
def an_unknown_first_dimension_stays_unknown() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allgather(x)
            assert y.shape.as_list() == [None, 3]
            total = tf.reduce_sum(y * y)
        return y, tape.gradient(total, x)

    for more in range(2):
        rows = hvd.rank() + 1 + more
        y, gradient = step(tf.fill([rows, 3], float(rows)))
        assert y.shape == (RANKS * (RANKS + 1) // 2 + RANKS * more, 3)
        np.testing.assert_array_equal(gradient.numpy(), np.full([rows, 3], 2.0 * rows))

    known = tf.function(hvd.allgather).get_concrete_function(tf.TensorSpec([4, 3]))
    assert known.outputs[0].shape.as_list() == [None, 3]
    unknown = tf.function(hvd.allgather).get_concrete_function(tf.TensorSpec(None))
    assert unknown.outputs[0].shape.rank is None


@check
def two_models_with_their_own_functions_do_not_disturb_each_other() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    def make(
        shapes: list[list[int]],
    ) -> tuple[list[Any], Callable[[Any], None], Callable[..., Any]]:
        variables = [tf.Variable(tf.fill(shape, 0.5)) for shape in shapes]

        def loss_of(values: list[Any], x: Any) -> Any:
            return sum(tf.reduce_mean(tf.square(v * tf.reduce_mean(x) - 1.0)) for v in values)

        @tf.function
        def step(x: Any) -> None:
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = loss_of(variables, x)
            for v, g in zip(variables, tape.gradient(loss, variables), strict=True):
                v.assign_sub(0.1 * g)

        def reference(values: list[Any], xs: list[Any]) -> list[Any]:
            grads = []
            for x in xs:
                with tf.GradientTape() as tape:
                    tape.watch(values)
                    loss = loss_of(values, x)
                grads.append(tape.gradient(loss, values))
            return [v - 0.1 * (a + b) / 2 for v, a, b in zip(values, *grads, strict=True)]

        return variables, step, reference

    models = [make([[2, 3], [3], []]), make([[5], [1, 2]])]
    expected = [[tf.identity(v) for v in variables] for variables, _, _ in models]
    # A and B in turn; then A traced again by another batch size, on one rank first; then A twice.
    plan = [(i % 2, 4) for i in range(40)] + [(0, 4 + hvd.rank()), (0, 7), (0, 4), (0, 4)]
    for index, (which, _) in enumerate(plan):
        variables, step, reference = models[which]
        xs = [tf.fill([4 if index < 40 else 4 + r], 0.1 * index + r) for r in range(RANKS)]
        step(xs[hvd.rank()])
        expected[which] = reference(expected[which], xs)
    for (variables, _, _), values in zip(models, expected, strict=True):
        for variable, value in zip(variables, values, strict=True):
            np.testing.assert_allclose(variable.numpy(), value.numpy(), atol=1e-5)


@check
def ops_run_inside_loops_and_branches() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    @tf.function
    def loop(x: Any, branch: Any) -> Any:
        for _ in tf.range(5):
            x = hvd.allreduce(x, op=hvd.Sum)
        return tf.cond(branch, lambda: hvd.allreduce(x, op=hvd.Sum), lambda: x)

    assert loop(tf.ones([1]), tf.constant(True)).numpy() == [64.0]
    assert loop(tf.ones([1]), tf.constant(False)).numpy() == [32.0]
    caught = tf.ones([1])  # an eager tensor, without a name
    assert tf.function(lambda: hvd.allreduce(caught, op=hvd.Sum))().numpy() == [RANKS]


@check
def names_match_whatever_the_order() -> None:
    # Two threads: the calls of the ranks have no common order, so they need names.
    import threading

    import tensorflow as tf

    import syrtos.tensorflow as hvd

    results: dict[str, float] = {}

    def reduce(name: str, value: float) -> None:
        results[name] = float(hvd.allreduce(tf.constant(value), op=hvd.Sum, name=name))

    names = ["first", "second"] if hvd.rank() == 0 else ["second", "first"]
    values = {"first": 1.0, "second": 10.0}
    threads = [threading.Thread(target=reduce, args=(n, values[n])) for n in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"first": 2.0, "second": 20.0}


@check
def a_graph_of_version_1_names_its_ops() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    graph = tf.Graph()
    with graph.as_default():
        x = tf.constant([hvd.rank() + 1.0], name="x")
        with tf.name_scope("scope"):
            y = hvd.allreduce(x, op=hvd.Sum)
            z = hvd.allreduce(x, op=hvd.Sum, name="mine")
            w = hvd.allreduce(x, op=hvd.Sum, name="mine", ignore_name_scope=True)
            again = hvd.allreduce(x, op=hvd.Sum)
    names = [
        op.get_attr("op_name") for op in graph.get_operations() if op.type == "SyrtosAllreduce"
    ]
    automatic = b"scope/SyrtosAllreduce_x_0"
    assert names == [automatic, b"scope/mine", b"mine", automatic + b"_1"], names
    assert y.op.name == automatic.decode()
    assert y.op.type == "SyrtosAllreduce"
    with tf.compat.v1.Session(graph=graph) as session:
        assert [v.tolist() for v in session.run([y, z, w, again])] == [[3.0]] * 4


@check
def barriers_are_part_of_graphs() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()

    @tf.function
    def waits(x: Any) -> Any:
        hvd.barrier()
        return hvd.allreduce(x, op=hvd.Sum)

    @tf.function
    def waits_or_not(x: Any) -> Any:
        return waits(x) if rank == 0 else hvd.allreduce(x, op=hvd.Sum)

    for _ in range(2):
        assert waits(tf.ones([1])).numpy() == [RANKS]
        with pytest.raises(tf.errors.FailedPreconditionError, match="barrier"):
            waits_or_not(tf.ones([1]))
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        session.run(hvd.barrier())


@check
def topology_ops_tell_ranks() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    size, rank, included = tf.function(
        lambda: (hvd.size_op(), hvd.rank_op(), hvd.process_set_included_op())
    )()
    assert (int(size), int(rank), int(included)) == (RANKS, hvd.rank(), 1)
