"""Values of all collectives, eager and inside graphs, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorflow_checks import (
    ALL_TYPES,
    COMPLEX,
    FLOATS,
    INTEGERS,
    RANKS,
    assert_equal,
    both_ways,
    check,
    tensor_of,
    values_of,
)


@check
def allreduce_of_every_type_equals_numpy() -> None:
    import syrtos.tensorflow as hvd

    for dtype in (*FLOATS, *INTEGERS, *COMPLEX):
        total = values_of(0, dtype) + values_of(1, dtype)
        for function in both_ways(lambda x: hvd.allreduce(x, op=hvd.Sum)):
            assert_equal(function(tensor_of(hvd.rank(), dtype)), dtype, total)


@check
def average_of_integers_truncates_toward_zero() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    for dtype in ("int32", "int64"):
        sums = np.array([6, 7, -7], dtype)
        mine = sums if hvd.rank() == 0 else np.zeros_like(sums)
        mean = hvd.allreduce(tf.constant(mine))
        assert_equal(mean, dtype, np.array([3, 3, -3], dtype))
    big = hvd.allreduce(tf.constant(2**40 + 1 if hvd.rank() == 0 else 0, tf.int64))
    assert int(big) == (2**40 + 1) // 2


@check
def min_max_product_and_scales_equal_numpy() -> None:
    import syrtos.tensorflow as hvd

    mine = [values_of(rank, "float64") for rank in range(RANKS)]
    x = tensor_of(hvd.rank(), "float64")
    assert_equal(hvd.allreduce(x, op=hvd.Min), "float64", np.minimum(*mine))
    assert_equal(hvd.allreduce(x, op=hvd.Max), "float64", np.maximum(*mine))
    assert_equal(hvd.allreduce(x, op=hvd.Product), "float64", mine[0] * mine[1])
    # 1/3 is not a 32-bit number: the scale arrives as a double.
    scaled = hvd.allreduce(x, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=3.0)
    np.testing.assert_allclose(scaled.numpy(), mine[0] + mine[1], rtol=1e-15)


@check
def grouped_allreduce_mixes_types_shapes_and_empty_tensors() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    def step(a: Any, b: Any, c: Any, d: Any) -> Any:
        return hvd.grouped_allreduce([a, b, c, d], op=hvd.Sum)

    r = float(hvd.rank() + 1)
    for function in both_ways(step):
        a, b, c, d = function(
            tf.fill([3], r),
            tf.cast(tf.fill([2, 2], r), tf.bfloat16),
            tf.zeros([0, 5], tf.float64),
            tf.constant(int(r), tf.int64),
        )
        assert a.numpy().tolist() == [3.0] * 3
        assert b.dtype == tf.bfloat16
        assert (tf.cast(b, tf.float32).numpy() == 3.0).all()
        assert c.shape == (0, 5)
        assert c.dtype == tf.float64
        assert d.shape == ()
        assert int(d) == 3
    assert hvd.grouped_allreduce([]) == []


@check
def the_input_keeps_its_value() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    variable = tf.Variable([hvd.rank() + 1.0])

    @tf.function
    def twice(x: Any) -> Any:
        y = x + 0.0
        return hvd.allreduce(y, op=hvd.Sum), hvd.allreduce(variable, op=hvd.Sum), y

    x = tf.constant([hvd.rank() + 1.0])
    total, of_variable, y = twice(x)
    assert total.numpy() == of_variable.numpy() == [3.0]
    assert x.numpy() == y.numpy() == variable.numpy() == [hvd.rank() + 1.0]


@check
def allgather_of_every_type_with_uneven_rows_equals_numpy() -> None:
    import syrtos.tensorflow as hvd

    for dtype in ALL_TYPES:
        whole = np.concatenate([values_of(rank, dtype, rank + 1) for rank in range(RANKS)])
        for function in both_ways(hvd.allgather):
            assert_equal(function(tensor_of(hvd.rank(), dtype, hvd.rank() + 1)), dtype, whole)
    empty = hvd.allgather(tensor_of(0, "int16", 0))
    assert empty.shape == (0, 4)


@check
def broadcast_of_every_type_equals_the_roots() -> None:
    import syrtos.tensorflow as hvd

    for dtype in ALL_TYPES:
        for function in both_ways(lambda x: hvd.broadcast(x, root_rank=1)):
            assert_equal(function(tensor_of(hvd.rank(), dtype)), dtype, values_of(1, dtype))


@check
def alltoall_sends_rows_and_tells_the_splits() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    # Rank r sends r + 1 rows to rank 0 and 2 rows to rank 1, all of value 10 * r + target.
    def rows_of(rank: int) -> list[int]:
        return [10 * rank] * (rank + 1) + [10 * rank + 1] * 2

    me = hvd.rank()
    expected = [10 * r + me for r in range(RANKS) for _ in range(r + 1 if me == 0 else 2)]
    received_from = [r + 1 if me == 0 else 2 for r in range(RANKS)]
    for function in both_ways(hvd.alltoall):
        got, received = function(tf.constant(rows_of(me)), tf.constant([me + 1, 2]))
        assert got.numpy().tolist() == expected
        assert received.dtype == tf.int32
        assert received.numpy().tolist() == received_from
    even = hvd.alltoall(tf.constant([me, me + 10]))
    assert even.numpy().tolist() == [10 * me, 10 * me + 1]


@check
def reducescatter_gives_the_first_ranks_the_extra_row() -> None:
    import syrtos.tensorflow as hvd

    mean = (values_of(0, "float32") + values_of(1, "float32")) / 2
    share = mean[:2] if hvd.rank() == 0 else mean[2:]
    for function in both_ways(hvd.reducescatter):
        assert_equal(function(tensor_of(hvd.rank(), "float32")), "float32", share)


@check
def indexed_slices_are_gathered() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    r = hvd.rank()
    slices = tf.IndexedSlices(tf.fill([r + 1, 2], r + 1.0), tf.range(r + 1), tf.constant([4, 2]))
    dense = np.array([[3.0] * 2, [2.0] * 2, [0.0] * 2, [0.0] * 2])
    for op, expected in ((hvd.Sum, dense), (hvd.Average, dense / 2)):
        result, other = hvd.grouped_allreduce([slices, tf.ones([1])], op=op)
        assert isinstance(result, tf.IndexedSlices)
        np.testing.assert_array_equal(tf.convert_to_tensor(result).numpy(), expected)
        assert other.numpy() == [RANKS if op == hvd.Sum else 1]
    with pytest.raises(NotImplementedError, match="only Average and Sum"):
        hvd.allreduce(slices, op=hvd.Max)
    with pytest.raises(NotImplementedError, match="prescale_factor"):
        hvd.allreduce(slices, prescale_factor=0.5)


@check
def compression_keeps_the_type() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    x = tf.constant([hvd.rank() + 0.5, 1 / 3])
    for compression, wire in (
        (hvd.Compression.fp16, "float16"),
        (hvd.Compression.bf16, "bfloat16"),
    ):
        for function in both_ways(lambda x: hvd.allreduce(x, compression=compression)):  # noqa: B023
            y = function(x)
            assert y.dtype == tf.float32
            assert y.numpy()[0] == 1.0
            assert y.numpy()[1] == tf.cast(tf.cast(1 / 3, wire), tf.float32).numpy()
    numbers = tf.constant([1, 2])
    assert hvd.allreduce(numbers, compression=hvd.Compression.fp16).dtype == tf.int32


@check
def odd_shapes_keep_their_dimensions() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    for dtype in ("bool", "uint8", "int8", "int16", "complex64", "float64"):
        for shape in ([0], [1], [3, 0, 2], [1, 1, 1]):
            of_ranks = [np.full(shape, r).astype(dtype) for r in range(RANKS)]
            mine = tf.constant(of_ranks[rank])
            for way in both_ways(lambda x: hvd.broadcast(x, 1)):
                assert_equal(way(mine), dtype, of_ranks[1])
            for way in both_ways(hvd.allgather):
                assert_equal(way(mine), dtype, np.concatenate(of_ranks))
    for way in both_ways(lambda x: hvd.allreduce(x, op=hvd.Sum)):
        assert_equal(way(tf.constant(1.5 + rank)), "float32", np.float32(4.0))
