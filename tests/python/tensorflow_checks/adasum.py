"""``op=Adasum``, eager and inside graphs, against the formula in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorflow_checks import RANKS, both_ways, check


def of_two(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    product = np.vdot(a, b)
    return (1 - product / (2 * np.vdot(a, a))) * a + (1 - product / (2 * np.vdot(b, b))) * b


def shares(key: int, dtype: str = "float64", count: int = 4500) -> list[np.ndarray[Any, Any]]:
    return [
        np.random.default_rng([rank, key]).normal(0.2, 1.0 + rank, count).astype(dtype)
        for rank in range(RANKS)
    ]


@check
def adasum_equals_the_formula() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    for dtype, bound in (("float16", 4e-3), ("float32", 4e-6), ("float64", 1e-13)):
        parts = shares(1, dtype)
        expected = of_two(*(part.astype("float64") for part in parts))
        for function in both_ways(lambda x: hvd.allreduce(x, op=hvd.Adasum)):
            for _ in range(2):
                result = function(tf.constant(parts[hvd.rank()]))
                assert result.dtype.name == dtype
                np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=bound * 4)
    bfloat16 = [tf.cast(part, tf.bfloat16) for part in shares(2)]
    expected = of_two(*(tf.cast(part, tf.float64).numpy() for part in bfloat16))
    result = tf.cast(hvd.allreduce(bfloat16[hvd.rank()], op=hvd.Adasum), tf.float64)
    np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=0.1)


@check
def grouped_adasum_keeps_tensors_apart_and_scales() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    lists = [shares(key, "float32", count) for key, count in ((3, 5), (4, 9000), (5, 1))]

    def step(*tensors: Any) -> Any:
        return hvd.grouped_allreduce(list(tensors), op=hvd.Adasum, postscale_factor=0.5)

    for function in both_ways(step):
        results = function(*(tf.constant(parts[hvd.rank()]) for parts in lists))
        for result, parts in zip(results, lists, strict=True):
            expected = of_two(*(part.astype("float64") for part in parts)) / 2
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-5)


@check
def adasum_of_integers_is_refused_everywhere() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    for function in both_ways(lambda x: hvd.allreduce(x, op=hvd.Adasum)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Adasum is not defined for"):
            function(tf.constant([1, 2, 3]))
