"""``op=Adasum`` on ranks, against the definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import run_ranks

from syrtos.errors import InvalidRequestError

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-13}


def of_two(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the adaptive sum of two vectors, by the formula."""
    product, left, right = np.vdot(a, b), np.vdot(a, a), np.vdot(b, b)
    if left == 0 or right == 0:
        return a + b
    return (1 - product / (2 * left)) * a + (1 - product / (2 * right)) * b


def tree(vectors: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the adaptive sum of a power of two of vectors: neighbours first."""
    while len(vectors) > 1:
        vectors = [of_two(*vectors[i : i + 2]) for i in range(0, len(vectors), 2)]
    return vectors[0]


def share(rank: int, key: int, count: int, dtype: str) -> np.ndarray[Any, Any]:
    import ml_dtypes  # noqa: F401  (bfloat16 for NumPy)

    numbers = np.random.default_rng([rank, key]).normal(0.3, rank + 1.0, count)
    return numbers.astype(dtype)


def check(result: Any, shares: list[Any], before: float = 1.0, after: float = 1.0) -> None:
    expected = after * tree([before * one.astype(np.float64) for one in shares])
    dtype = shares[0].dtype
    assert result.dtype == dtype, (result.dtype, dtype)
    assert result.shape == shares[0].shape
    bound = TOLERANCE[dtype.name] * (np.abs(expected).max() if expected.size else 1.0)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=0, atol=bound)


def values_body() -> None:
    import syrtos.numpy as hvd

    hvd.init()
    everyone = range(hvd.size())

    def shares(key: int, count: int, dtype: str = "float32") -> list[np.ndarray[Any, Any]]:
        return [share(rank, key, count, dtype) for rank in everyone]

    key = 0
    for dtype in TOLERANCE:
        for count in (0, 1, 3, 5000, 300001):
            mine = shares(key, count, dtype)
            check(hvd.allreduce(mine[hvd.rank()], op=hvd.Adasum), mine)
            key += 1
    mine = shares(key, 777)
    scaled = hvd.allreduce(
        mine[hvd.rank()], op=hvd.Adasum, prescale_factor=0.5, postscale_factor=-3.0
    )
    check(scaled, mine, 0.5, -3.0)

    # In place, and with a shape that is no vector.
    matrices = [one.reshape(3, 7, 37) for one in shares(key, 777)]
    matrix = matrices[hvd.rank()].copy()
    hvd.allreduce_(matrix, op=hvd.Adasum)
    expected = tree([one.astype(np.float64).ravel() for one in matrices]).reshape(3, 7, 37)
    np.testing.assert_allclose(matrix, expected, atol=1e-5)

    # Each tensor of a group, and each of many in flight, has its own angle.
    counts = (4, 0, 9001, 1, 4096, 2)
    lists = [shares(100 + i, n, "float64" if i == 3 else "float32") for i, n in enumerate(counts)]
    grouped = hvd.grouped_allreduce([one[hvd.rank()] for one in lists], op=hvd.Adasum)
    handles = [
        hvd.allreduce_async(one[hvd.rank()], name=f"t{i}", op=hvd.Adasum)
        for i, one in enumerate(lists)
    ]
    for ours, result, handle in zip(lists, grouped, handles, strict=True):
        check(result, ours)
        alone = handle.wait()
        assert alone.tobytes() == result.tobytes(), "fusion changed bits"
        # Ranks hold the same bits.
        first = hvd.broadcast(result, 0)
        assert first.tobytes() == result.tobytes()
    hvd.shutdown()


def edges_body() -> None:
    import syrtos.numpy as hvd

    hvd.init()
    me, size = hvd.rank(), hvd.size()
    zero = np.zeros(5000, np.float32)
    some = np.arange(5000, dtype=np.float32) - 7
    assert not hvd.allreduce(zero, op=hvd.Adasum).any()
    for who in range(size):
        result = hvd.allreduce(some if me == who else zero, op=hvd.Adasum)
        np.testing.assert_array_equal(result, some)
    # The same vector everywhere is its own mean; orthogonal ones give their sum.
    np.testing.assert_array_equal(hvd.allreduce(some, op=hvd.Adasum), some)
    mine = np.zeros(size)
    mine[me] = me + 1.5
    np.testing.assert_array_equal(hvd.allreduce(mine, op=hvd.Adasum), np.arange(size) + 1.5)
    spoiled = some.copy()
    if me == size - 1:
        spoiled[17] = np.nan
    assert np.isnan(hvd.allreduce(spoiled, op=hvd.Adasum)).all()

    for dtype in ("int32", "uint8", "bool", "complex64"):
        with pytest.raises(InvalidRequestError, match=f"Adasum is not defined for.*{dtype}"):
            hvd.allreduce(np.ones(3, dtype), op=hvd.Adasum)
    with pytest.raises(InvalidRequestError, match="not possible in reducescatter"):
        hvd.reducescatter(np.ones((4, 2)), op=hvd.Adasum)

    # Ranks that have joined count as zeros.
    parts = [share(rank, 1, 6000, "float32") for rank in range(size)]
    if me != size - 1:
        present = [*parts[:-1], np.zeros(6000, np.float32)]
        check(hvd.allreduce(parts[me], name="last", op=hvd.Adasum), present)
    hvd.join()
    hvd.shutdown()


def sets_body() -> None:
    import syrtos.numpy as hvd

    hvd.init()
    pair, alone = hvd.add_process_set([0, 2]), hvd.add_process_set([1])
    parts = [share(rank, 2, 5001, "float32") for rank in range(3)]
    mine = parts[hvd.rank()]
    for _ in range(3):  # described in full, then by its number
        if hvd.rank() == 1:
            result = hvd.allreduce(mine, op=hvd.Adasum, process_set=alone)
            np.testing.assert_array_equal(result, mine)
        else:
            result = hvd.allreduce(mine, op=hvd.Adasum, process_set=pair)
            check(result, [parts[0], parts[2]])
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=r"power of two, but here it is 3\."):
            hvd.allreduce(mine, op=hvd.Adasum)
    np.testing.assert_array_equal(hvd.allreduce(np.ones(2), op=hvd.Sum), [3.0, 3.0])
    hvd.shutdown()


@pytest.mark.parametrize("body", [values_body, edges_body])
@pytest.mark.parametrize("ranks", [2, 4])
def test_on_ranks(body: Any, ranks: int) -> None:
    run_ranks(body, ranks)


def test_process_sets_of_two_and_one_in_a_world_of_three() -> None:
    run_ranks(sets_body, 3)


def test_one_rank_gets_its_own_tensor() -> None:
    import syrtos.numpy as hvd

    hvd.init()
    try:
        x = share(0, 3, 100, "float32")
        np.testing.assert_array_equal(hvd.allreduce(x, op=hvd.Adasum), x)
        scaled = hvd.allreduce(x, op=hvd.Adasum, prescale_factor=2.0, postscale_factor=0.25)
        np.testing.assert_array_equal(scaled, x / 2)
        with pytest.raises(InvalidRequestError, match="Adasum is not defined for.*int64"):
            hvd.allreduce(np.arange(3), op=hvd.Adasum)
    finally:
        hvd.shutdown()
