"""allreduce and reducescatter: values, dtypes, shapes, scales, in place."""

from __future__ import annotations

import warnings

import numpy as np

from conformance.front_ends import FrontEnd
from conformance.registry import check, raises
from conformance.values import SHAPES, data, dtype_of, factors, mean, same, total, wide


def _everyone(front: FrontEnd, shape: tuple[int, ...], dtype: str, salt: int = 0) -> list:
    return [data(rank, shape, dtype, salt) for rank in front.ranks]


@check
def allreduce_sums_every_dtype_and_shape(front: FrontEnd) -> None:
    hvd = front.hvd
    for dtype in (*front.numbers, *front.complexes):
        for shape in SHAPES:
            mine = data(hvd.rank(), shape, dtype)
            result = front.array(hvd.allreduce(front.tensor(mine), op=hvd.Sum))
            same(result, total(_everyone(front, shape, dtype)), dtype, shape)
            same(mine, data(hvd.rank(), shape, dtype), dtype, shape)  # the input stays


@check
def allreduce_means_every_dtype_truncating_integers(front: FrontEnd) -> None:
    hvd = front.hvd
    for dtype in front.numbers:
        for shape in SHAPES:
            result = front.array(hvd.allreduce(front.tensor(data(hvd.rank(), shape, dtype))))
            same(result, mean(_everyone(front, shape, dtype), dtype), dtype, shape)


@check
def mean_of_integers_is_exact_and_toward_zero(front: FrontEnd) -> None:
    hvd, size = front.hvd, front.hvd.size()
    for dtype in ("int32", "int64"):
        sums = [6, 7, -7, *([2**40 + 1] if dtype == "int64" else [])]
        mine = np.array(sums if hvd.rank() == size - 1 else [0] * len(sums), dtype)
        result = front.array(hvd.allreduce(front.tensor(mine), op=hvd.Average))
        expected = [abs(value) // size * (1 if value > 0 else -1) for value in sums]
        same(result, np.array(expected), dtype, (len(sums),))


@check
def min_max_product_of_every_dtype(front: FrontEnd) -> None:
    hvd = front.hvd
    for dtype in front.numbers:
        for shape in SHAPES:
            all_data = np.stack([wide(array) for array in _everyone(front, shape, dtype)])
            mine = front.tensor(data(hvd.rank(), shape, dtype))
            same(front.array(hvd.allreduce(mine, op=hvd.Min)), all_data.min(0), dtype, shape)
            same(front.array(hvd.allreduce(mine, op=hvd.Max)), all_data.max(0), dtype, shape)
            shares = [factors(rank, shape, dtype) for rank in front.ranks]
            result = hvd.allreduce(front.tensor(shares[hvd.rank()]), op=hvd.Product)
            expected = np.prod(np.stack([wide(share) for share in shares]), axis=0)
            same(front.array(result), expected, dtype, shape)


@check
def bool_sum_is_or_and_product_is_and(front: FrontEnd) -> None:
    hvd = front.hvd
    everyone = np.stack(_everyone(front, (23,), "bool"))
    mine = front.tensor(everyone[hvd.rank()])
    for op, expected in (
        (hvd.Sum, everyone.any(0)),
        (hvd.Max, everyone.any(0)),
        (hvd.Product, everyone.all(0)),
        (hvd.Min, everyone.all(0)),
    ):
        same(front.array(hvd.allreduce(mine, op=op)), expected, "bool", (23,))


@check
def nan_in_any_input_gives_nan(front: FrontEnd) -> None:
    hvd = front.hvd
    for dtype in front.floats:
        mine = np.ones(4, dtype_of(dtype))
        if hvd.rank() == hvd.size() - 1:
            mine[2] = np.nan
        for op in (hvd.Min, hvd.Max, hvd.Sum):
            result = front.array(hvd.allreduce(front.tensor(mine), op=op)).astype(np.float64)
            assert np.isnan(result).tolist() == [False, False, True, False], (dtype, op)


@check
def prescale_and_postscale_multiply(front: FrontEnd) -> None:
    hvd = front.hvd
    for dtype in front.floats:
        shares = _everyone(front, (33,), dtype)
        result = hvd.allreduce(
            front.tensor(shares[hvd.rank()]), op=hvd.Sum, prescale_factor=0.5, postscale_factor=2.0
        )
        same(front.array(result), total(shares), dtype, (33,))
        result = hvd.allreduce(front.tensor(shares[hvd.rank()]), op=hvd.Sum, postscale_factor=0.25)
        same(front.array(result), total(shares) * 0.25, dtype, (33,))


@check
def scales_of_integers_truncate(front: FrontEnd) -> None:
    hvd = front.hvd
    shares = _everyone(front, (23,), "int32")
    expected = sum(np.trunc(share * 0.5) for share in shares)
    mine = front.tensor(shares[hvd.rank()])
    result = front.array(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5))
    same(result, expected, "int32", (23,))
    result = front.array(hvd.allreduce(mine, op=hvd.Sum, postscale_factor=0.5))
    same(result, np.trunc(sum(shares) * 0.5), "int32", (23,))


@check
def predivided_mean_equals_the_mean(front: FrontEnd) -> None:
    hvd = front.hvd
    shares = _everyone(front, (17,), "float64")
    f = 4.0
    result = hvd.allreduce(
        front.tensor(shares[hvd.rank()]),
        op=hvd.Sum,
        prescale_factor=1 / f,
        postscale_factor=f / hvd.size(),
    )
    np.testing.assert_allclose(front.array(result), np.mean(shares, axis=0), rtol=1e-15)


@check
def average_argument_is_deprecated_but_works(front: FrontEnd) -> None:
    hvd = front.hvd
    shares = _everyone(front, (5,), "float32")
    mine = front.tensor(shares[hvd.rank()])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = front.array(hvd.allreduce(mine, average=False))
    same(result, total(shares), "float32", (5,))
    assert any(issubclass(w.category, DeprecationWarning) for w in seen)
    raises(ValueError, lambda: hvd.allreduce(mine, average=True, op=hvd.Sum), "average")


@check
def compressed_allreduce_keeps_the_dtype(front: FrontEnd) -> None:
    hvd = front.hvd
    for dtype in ("float32", "float64"):
        shares = _everyone(front, (100,), dtype)
        for compression in (hvd.Compression.none, hvd.Compression.fp16):
            mine = front.tensor(shares[hvd.rank()])
            result = hvd.allreduce(mine, op=hvd.Sum, compression=compression)
            same(front.array(result), total(shares), dtype, (100,))
    shares = _everyone(front, (100,), "int32")
    mine = front.tensor(shares[hvd.rank()])
    result = hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16)
    same(front.array(result), total(shares), "int32", (100,))


@check
def large_tensors_are_right(front: FrontEnd) -> None:
    hvd = front.hvd
    shares = _everyone(front, (300_007,), "float32")
    result = front.array(hvd.allreduce(front.tensor(shares[hvd.rank()]), op=hvd.Sum))
    same(result, total(shares), "float32", (300_007,))


@check
def reducescatter_gives_the_first_ranks_one_row_more(front: FrontEnd) -> None:
    hvd, size, rank = front.hvd, front.hvd.size(), front.hvd.rank()
    for dtype in front.numbers:
        for rows in (0, 1, 7, 2 * size):
            shares = _everyone(front, (rows, 3), dtype)
            counts = [rows // size + (1 if r < rows % size else 0) for r in range(size)]
            begin = sum(counts[:rank])
            mine = slice(begin, begin + counts[rank])
            result = front.array(hvd.reducescatter(front.tensor(shares[rank]), op=hvd.Sum))
            same(result, total(shares)[mine], dtype, (counts[rank], 3))
            result = front.array(hvd.reducescatter(front.tensor(shares[rank])))
            same(result, mean(shares, dtype)[mine], dtype, (counts[rank], 3))


@check
def in_place_results_are_the_tensor_itself(front: FrontEnd) -> None:
    if not (front.handles and front.in_place):
        return
    hvd = front.hvd
    for dtype in front.numbers:
        for shape in SHAPES:
            tensor = front.tensor(data(hvd.rank(), shape, dtype))
            assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
            same(front.array(tensor), total(_everyone(front, shape, dtype)), dtype, shape)
