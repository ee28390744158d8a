"""Values of all collectives, their gradients, and what XLA does around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow_checks import ALL_TYPES, COMPLEX, FLOATS, INTEGERS, tensor_of, values_of

from tensorflow_xla_checks import RANKS, check, compiled, same


@check
def every_type_and_collective_equals_numpy() -> None:
    import syrtos.tensorflow as hvd

    rank, numbers = hvd.rank(), (*FLOATS, *INTEGERS, *COMPLEX)

    def step(tensors: list[Any]) -> Any:
        with_numbers = tensors[: len(numbers)]
        return (
            hvd.grouped_allreduce(with_numbers, op=hvd.Sum),
            hvd.grouped_reducescatter(with_numbers, op=hvd.Sum),
            hvd.grouped_allgather(tensors),
            [hvd.broadcast(tensor, 1) for tensor in tensors],
            [hvd.alltoall(tensor[:2]) for tensor in tensors],
        )

    types = (*numbers, "bool")
    assert set(types) == set(ALL_TYPES)
    results = compiled(step)([tensor_of(rank, dtype) for dtype in types])
    share = slice(2) if rank == 0 else slice(2, 3)  # of three rows
    for kind, of_types in enumerate(results):
        for dtype, result in zip(types, of_types, strict=False):
            of_ranks = [values_of(r, dtype) for r in range(RANKS)]
            total = of_ranks[0] if dtype == "bool" else of_ranks[0] + of_ranks[1]
            exchanged = np.stack([of_ranks[0][rank], of_ranks[1][rank]])
            cases = (total, total[share], np.concatenate(of_ranks), of_ranks[1], exchanged)
            assert result.dtype.name == dtype
            same(result, cases[kind])


@check
def options_of_reductions_and_of_exchanges() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    mine = [values_of(r, "float64") for r in range(RANKS)]

    def step(x: Any, whole: Any) -> Any:
        return (
            hvd.allreduce(x, op=hvd.Min),
            hvd.allreduce(x, op=hvd.Max),
            hvd.allreduce(x, op=hvd.Product),
            hvd.allreduce(whole),
            hvd.allreduce(x, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=3.0),
            hvd.allreduce(tf.cast(x, tf.float32) / 3.0, compression=hvd.Compression.fp16),
            hvd.alltoall(x[:2], splits=[1, 1])[1],
            hvd.allreduce(tf.zeros([0, 5]), op=hvd.Sum),
            hvd.allreduce(tf.constant(2), op=hvd.Sum),
            hvd.size_op(),
            hvd.rank_op(),
        )

    whole = tf.constant([7, -7] if rank == 0 else [0, 0])
    low, high, product, mean, scaled, squeezed, splits, empty, two, size, place = compiled(step)(
        tensor_of(rank, "float64"), whole
    )
    same(low, np.minimum(*mine))
    same(high, np.maximum(*mine))
    same(product, mine[0] * mine[1])
    same(mean, np.array([3, -3]))
    np.testing.assert_allclose(scaled, mine[0] + mine[1], rtol=1e-15)
    assert squeezed.dtype == tf.float32
    np.testing.assert_allclose(squeezed, (mine[0] + mine[1]) / 6, rtol=2e-3)
    same(splits, np.array([1, 1]))
    same(empty, np.zeros([0, 5]))
    same(two, np.array(4))
    assert (int(size), int(place)) == (RANKS, rank)


@check
def gradients_have_horovods_form() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    x = tf.constant([1.0, 2.0])
    is_root = float(rank == 0)
    cases = [
        (lambda x: hvd.allreduce(x), [1.0, 1.0]),
        (lambda x: hvd.allreduce(x, op=hvd.Sum), [RANKS] * 2),
        (lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), [RANKS / 2] * 2),
        (hvd.allgather, [1.0, 1.0]),
        (lambda x: hvd.broadcast(x, 0), [is_root, is_root]),
        (hvd.alltoall, [1.0, 1.0]),
        (hvd.reducescatter, [1.0, 1.0]),
        # Rows that the ranks cannot share evenly.
        (lambda x: hvd.reducescatter(tf.concat([x, x[:1]], 0), op=hvd.Sum), [2.0 * RANKS, RANKS]),
    ]

    def gradient(x: Any) -> Any:
        results = []
        for function, _ in cases:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(function(x))
            results.append(tape.gradient(y, x))
        return results

    for (_, expected), result in zip(cases, compiled(gradient)(x), strict=True):
        np.testing.assert_array_equal(result, np.asarray(expected))


@check
def gradients_of_other_shapes_of_programs() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    x = tf.constant([1.0 + rank, 3.0])
    outside = compiled(lambda x: hvd.allreduce(x * x, op=hvd.Sum))
    with tf.GradientTape() as tape:  # the gradient is a program of its own
        tape.watch(x)
        y = outside(x)
    same(y, np.array([5.0, 18.0]))
    same(tape.gradient(y, x), 2 * RANKS * x.numpy())

    def twice(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                a, b = hvd.grouped_allreduce([x * x * x, 2.0 * x], op=hvd.Average)
                y = tf.reduce_sum(a)  # nothing depends on the other
            first = inner.gradient(y, x)
        return first, outer.gradient(first, x), tf.gradients(b, x)[0]

    first, second, of_other = compiled(twice)(x)
    same(first, 3 * x.numpy() ** 2)
    same(second, 6 * x.numpy())
    same(of_other, np.array([2.0, 2.0]))


@check
def programs_keep_what_they_are_given() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    variable = tf.Variable([hvd.rank() + 1.0])

    def step(x: Any) -> Any:
        y = x + 1.0
        total = hvd.allreduce(y, op=hvd.Sum)  # may not overwrite what is used below
        of_variable = hvd.allreduce(variable, op=hvd.Sum)
        variable.assign(of_variable + 1.0)
        return total, hvd.allreduce(x, op=hvd.Sum), y * 2.0, variable.read_value()

    x = tf.constant([hvd.rank() + 1.0])
    for call, before in ((compiled(step), 3.0), (compiled(step), 8.0)):
        total, of_input, y, after = call(x)
        same(total, [5.0])
        same(of_input, [3.0])
        same(y, [2.0 * (hvd.rank() + 2.0)])
        same(after, [before + 1.0])
        same(x, [hvd.rank() + 1.0])


@check
def branches_loops_and_functions_keep_the_order_of_the_text() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    # Of which rank takes part in which collective only the number of elements tells.
    def total(elements: Any) -> Any:
        return hvd.allreduce(tf.fill([elements], 1.0 + hvd.rank()), op=hvd.Sum)

    def body(i: Any, x: Any) -> Any:
        total(4)  # nobody uses it
        return i + 1, hvd.allreduce(x, op=hvd.Sum) / RANKS

    def step(x: Any, times: Any) -> Any:
        first = total(1)
        _, looped = tf.while_loop(lambda i, _: i < times, body, (0, x))
        chosen = tf.cond(times > 2, lambda: total(6)[:2], lambda: hvd.broadcast(x, 1))
        equal = [total(7) for _ in range(2)]
        return first, *equal, inner(), total(9), looped, chosen, hvd.allgather(x)

    # One rank runs a program; the other a graph, whose ops TensorFlow keeps in order.
    x = tf.fill([2], 1.0 + hvd.rank())
    for programs in (1, 0, RANKS):
        is_program = hvd.rank() != programs
        inner = tf.function(lambda: total(8), jit_compile=is_program, autograph=False)
        run = tf.function(step, jit_compile=is_program, autograph=False)
        for times in (0, 1, 5):
            *totals, looped, chosen, last = run(x, tf.constant(times))
            for elements, result in zip((1, 7, 7, 8, 9), totals, strict=True):
                same(result, [3.0] * elements)
            same(looped, x.numpy() if times == 0 else [1.5, 1.5])
            same(chosen, [3.0, 3.0] if times > 2 else [2.0, 2.0])
            same(last, [1.0, 1.0, 2.0, 2.0])


@check
def what_nobody_uses_is_done_all_the_same() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    def first(x: Any) -> Any:
        hvd.allreduce(x, op=hvd.Sum)
        hvd.barrier()
        hvd.allreduce(x, op=hvd.Sum)
        return x

    def other(x: Any) -> Any:
        if hvd.rank() == 0:
            return first(x)
        a = hvd.allreduce(x, op=hvd.Sum)
        hvd.barrier()
        return a + hvd.allreduce(x, op=hvd.Sum)

    same(compiled(other)(tf.ones([2])), np.full(2, 1.0 if hvd.rank() == 0 else 4.0))
    # Programs, graphs and eager calls are paired with one another by their order.
    ways = [compiled, tf.function, lambda function: function]
    for turn in range(3):
        way = ways[(turn + hvd.rank()) % 3]
        same(way(lambda x: hvd.allreduce(x, op=hvd.Sum))(tf.ones([3])), np.full(3, 2.0))


@check
def process_sets_in_programs() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd
    from tensorflow_xla_checks import error_class, raises

    only = hvd.add_process_set([1])
    call = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=only))
    gather = compiled(lambda x: (hvd.allgather(x, process_set=only), hvd.allgather(x)))
    if hvd.rank() == 1:
        same(call(tf.ones([2])), np.ones(2))
    else:
        raises(ValueError, lambda: call(tf.ones([2])), "no member", "ranks=[1]")
    whole = gather(tf.ones([2]))[1] if hvd.rank() else compiled(hvd.allgather)(tf.ones([2]))
    same(whole, np.ones(4))
    number = only.process_set_id
    assert hvd.remove_process_set(only)
    again = hvd.add_process_set([0])  # takes the same number
    assert again.process_set_id == number
    if hvd.rank() == 1:
        raises(ValueError, lambda: hvd.allreduce(tf.ones([1]), process_set=only), "removed")
        words = ("compiled for position 0 of 1", "Compile it again")
        raises(error_class("InvalidArgumentError"), lambda: call(tf.ones([2])), *words)
    assert hvd.remove_process_set(again)
