"""Inputs that every rank can compute for every other, and what NumPy makes of them."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np

SHAPES = ((), (1,), (5,), (0,), (3, 0, 2), (2, 3), (1001,))


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def _integers(rank: int, shape: tuple[int, ...], salt: int) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    return ((np.arange(count) * 7 + 13 * rank + salt) % 23).reshape(shape)


def data(rank: int, shape: tuple[int, ...], dtype: str, salt: int = 0) -> np.ndarray:
    """Values whose sums over a few ranks are exact in every dtype."""
    numbers = _integers(rank, shape, salt)
    kind = dtype_of(dtype).kind
    if dtype == "bool":
        numbers = numbers % 2
    elif kind == "i":
        numbers = numbers - 11
    elif kind == "c":
        numbers = (numbers - 11) / 4 + 1j * (numbers % 5)
    elif kind != "u":
        numbers = (numbers - 11) / 4
    return np.asarray(numbers).astype(dtype_of(dtype))  # an array for () too


def factors(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values whose products over a few ranks are exact in every dtype."""
    return np.asarray(_integers(rank, shape, 3) % 3 + 1).astype(dtype_of(dtype))


def wide(array: np.ndarray) -> np.ndarray:
    """The same values where nothing is lost by adding a few of them."""
    kind = array.dtype.kind
    if kind in "iu":
        return array.astype(object)
    return array.astype(np.complex128 if kind == "c" else np.float64)


def truncated(values: np.ndarray, divisor: int, dtype: str) -> np.ndarray:
    """Exact quotients toward zero, by arithmetic of rational numbers."""
    flat = [int(Fraction(int(value), divisor)) for value in values.reshape(-1)]
    return np.array(flat, dtype_of(dtype)).reshape(values.shape)


def total(arrays: list[np.ndarray]) -> np.ndarray:
    """Sum in a wide type, rounded once to the dtype of the inputs."""
    return sum((wide(array) for array in arrays[1:]), wide(arrays[0]))


def mean(arrays: list[np.ndarray], dtype: str) -> np.ndarray:
    summed = np.asarray(total(arrays))
    if dtype_of(dtype).kind in "iu":
        return truncated(summed, len(arrays), dtype)
    return (summed / len(arrays)).astype(dtype_of(dtype))


def same(result: np.ndarray, expected: np.ndarray, dtype: str, shape: tuple[int, ...]) -> None:
    """Equal in dtype, shape and every bit that matters."""
    wanted = dtype_of(dtype)
    assert result.dtype == wanted, f"dtype {result.dtype}, not {wanted}"
    assert result.shape == shape, f"shape {result.shape}, not {shape}"
    expected = np.asarray(expected).astype(wanted).reshape(shape)
    np.testing.assert_array_equal(wide(result), wide(expected), err_msg=f"{dtype} {shape}")
