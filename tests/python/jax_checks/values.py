"""Values of every collective, at once and compiled: dtypes, trees, keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_checks import RANKS, both_ways, check, raises, same

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = ("float32", "float64", "float16", "bfloat16", *INTEGERS, "complex64", "complex128")
MOVABLE = (*NUMBERS, "bool", "float8_e4m3fn", "float8_e5m2")


def share(rank: int, dtype: str, rows: int = 4) -> np.ndarray[Any, Any]:
    """Small whole numbers: exact in every dtype, also when they are added."""
    import jax.numpy as jnp

    numbers = np.arange(rows * 3).reshape(rows, 3) % 4 + rank
    if dtype.startswith("complex"):
        numbers = numbers + 1j * (rank + 1)
    if dtype == "bool":
        numbers = numbers % 2
    return np.asarray(numbers).astype(jnp.dtype(dtype))


@check
def reductions_of_every_dtype() -> None:
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    for dtype in NUMBERS:
        shares = [share(r, dtype) for r in range(RANKS)]
        total = shares[0] + shares[1]
        for way in both_ways(lambda x: hvd.allreduce(x, op=hvd.Sum)):
            same(way(jnp.asarray(shares[rank])), total)
        for way in both_ways(lambda x: hvd.reducescatter(x, op=hvd.Sum)):
            same(way(jnp.asarray(shares[rank])), total[2 * rank : 2 * rank + 2])
        if not dtype.startswith("complex"):
            for way in both_ways(lambda x: hvd.allreduce(x, op=hvd.Max)):
                same(way(jnp.asarray(shares[rank])), shares[1])
    truth = [share(r, "bool") for r in range(RANKS)]
    for way in both_ways(lambda x: hvd.allreduce(x, op=hvd.Sum)):
        same(way(jnp.asarray(truth[rank])), truth[0] | truth[1])


@check
def movements_of_every_dtype() -> None:
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    for dtype in MOVABLE:
        shares = [share(r, dtype) for r in range(RANKS)]
        mine = jnp.asarray(shares[rank])
        for way in both_ways(hvd.allgather):
            same(way(mine), np.concatenate(shares))
        for way in both_ways(lambda x: hvd.broadcast(x, root_rank=1)):
            same(way(mine), shares[1])
        for way in both_ways(hvd.alltoall):
            same(way(mine), np.concatenate([s[2 * rank : 2 * rank + 2] for s in shares]))
        same(mine, shares[rank])


@check
def averages_scales_and_compression() -> None:
    import jax.numpy as jnp

    import syrtos.jax as hvd

    mine = jnp.arange(5.0) + hvd.rank()
    whole = jnp.array([-3, 4, 7]) - 2 * hvd.rank()
    for way in both_ways(lambda x: hvd.allreduce(x)):
        same(way(mine), np.arange(5.0) + 0.5)
        same(way(whole), np.trunc((2 * np.array([-3, 4, 7]) - 2) / 2).astype(int))
    for way in both_ways(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.1, postscale_factor=1 / 3)
    ):
        x = np.arange(5.0)
        np.testing.assert_allclose(way(mine), (0.1 * x + 0.1 * (x + 1)) / 3, rtol=1e-15)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for way in both_ways(lambda x, c=compression: hvd.allreduce(x, compression=c)):
            same(way(mine), np.arange(5.0) + 0.5)
            same(way(mine.astype(jnp.int32)), np.arange(5, dtype=np.int32))

    class Halved(hvd.Compression.none):
        wire_dtype = None

        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tensor / 2, 2

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tensor * ctx

    for way in both_ways(lambda x: hvd.allreduce(x, compression=Halved, op=hvd.Sum)):
        same(way(mine), 2 * np.arange(5.0) + 1)


@check
def trees_keep_their_structure_and_are_paired_by_key() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    leaves = {"w": jnp.full((2, 2), 1.0 + rank), "n": jnp.array(3 + rank), "none": None}
    order = list(leaves) if rank == 0 else list(reversed(leaves))
    tree = ({key: leaves[key] for key in order}, [jnp.full(3, rank, jnp.bfloat16)])
    for way in both_ways(lambda t: hvd.allreduce(t, op=hvd.Sum)):
        result = way(tree)
        assert jax.tree_util.tree_structure(result) == jax.tree_util.tree_structure(tree)
        same(result[0]["w"], np.full((2, 2), 3.0))
        same(result[0]["n"], np.array(7))
        same(result[1][0], np.full(3, 1, jnp.bfloat16))
    assert hvd.allreduce({}) == {}
    assert hvd.grouped_allgather([]) == []
    rows = {"x": jnp.full((1, 2), rank), "y": [jnp.full(2, rank, jnp.int8)]}
    for way in both_ways(lambda t: hvd.grouped_allgather([t, t["x"]])):
        first, second = way(rows)
        same(first["x"], np.array([[0, 0], [1, 1]]))
        same(first["y"][0], np.array([0, 0, 1, 1], np.int8))
        same(second, first["x"])
    raises(ValueError, lambda: jax.jit(hvd.allgather)(tree[0]), "scalar", "allgather")
    for way in both_ways(lambda a, b: hvd.alltoall({"a": a, "b": b})):
        result = way(jnp.array([rank, rank + 10]), jnp.array([[rank], [rank + 20]]))
        same(result["a"], np.array([0, 1]) + 10 * rank)
        same(result["b"], np.array([[0], [1]]) + 20 * rank)
    for way in both_ways(lambda a, b: hvd.grouped_reducescatter([a, b], op=hvd.Sum)):
        first, second = way(jnp.arange(5.0), jnp.arange(4))
        same(first, 2 * np.arange(5.0)[3 * rank : 3 + 2 * rank])
        same(second, 2 * np.arange(4)[2 * rank : 2 + 2 * rank])


@check
def rows_may_differ_outside_of_jit() -> None:
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    gathered = hvd.allgather(jnp.full((rank + 1, 2), rank))
    same(gathered, np.repeat([[0, 0], [1, 1]], [1, 2], axis=0))
    output, received = hvd.alltoall(jnp.arange(4) + 10 * rank, splits=[1, 3])
    same(output, np.array([0, 10]) if rank == 0 else np.array([1, 2, 3, 11, 12, 13]))
    same(received, np.array([1, 1]) if rank == 0 else np.array([3, 3]))


@check
def results_do_not_share_memory_with_inputs() -> None:
    import jax.numpy as jnp

    import syrtos.jax as hvd

    x = jnp.full(1000, 1.0 + hvd.rank())
    before = np.array(x)
    for way in both_ways(lambda x: (hvd.allreduce(x, op=hvd.Sum), hvd.broadcast(x, 0))):
        total, first = way(x)
        same(total, np.full(1000, 3.0))
        same(first, np.full(1000, 1.0))
        same(x, before)
    assert np.asarray(hvd.allreduce(x)).ctypes.data % 64 == 0  # handed over without a copy


@check
def parameters_of_many_kinds_come_from_the_root() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()

    def make(seed: int) -> dict[str, Any]:
        return {
            "w": jnp.full(3, float(seed)),
            "half": jnp.full((2, 2), seed, jnp.bfloat16),
            "flag": jnp.array(seed == 1),
            "old_key": jax.random.PRNGKey(seed),
            "key": jax.random.key(seed),
            "keys": jax.random.split(jax.random.key(seed, impl="rbg"), 3),
            "numpy": np.arange(3) + seed,
            "step": seed + 5,
            "rate": 0.5 * seed,
            "what": f"seed {seed}",
        }

    result, expected = hvd.broadcast_parameters(make(rank), root_rank=1), make(1)
    assert result["key"].dtype == expected["key"].dtype
    assert result["keys"].dtype == expected["keys"].dtype
    for name in ("key", "keys"):
        result[name], expected[name] = map(jax.random.key_data, (result[name], expected[name]))
    assert jax.random.key_data(jax.random.key(1)).dtype == np.uint32
    assert [type(result[n]) for n in ("step", "rate", "what")] == [int, float, str]
    for name, value in expected.items():
        if isinstance(value, int | float | str):
            assert result[name] == value
        else:
            same(result[name], value)
    for way in both_ways(lambda p: hvd.broadcast_parameters(p, root_rank=0)):
        same(jax.random.key_data(way(jax.random.key(rank + 7))), jax.random.key_data(
            jax.random.key(7)))  # fmt: skip
    keys = hvd.allgather(jax.random.split(jax.random.key(rank), 2))
    assert keys.shape == (2 * RANKS,)
    raises(ValueError, lambda: hvd.allreduce(jax.random.key(0)), "random keys", "allreduce")


@check
def handles_of_trees() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    handle = hvd.allreduce_async({"a": jnp.ones(3), "b": jnp.ones(2)}, op=hvd.Sum)
    other = hvd.grouped_reducescatter_async([jnp.arange(4.0)], op=hvd.Sum)
    moved = hvd.broadcast_async(jax.random.key(rank), root_rank=1)
    gathered = hvd.grouped_allgather_async([jnp.array([rank])])
    exchanged = hvd.alltoall_async(jnp.array([rank, rank]), splits=[1, 1])
    result = hvd.synchronize(handle)
    assert hvd.poll(handle)
    assert hvd.synchronize(handle) is result
    same(result["b"], np.full(2, 2.0))
    same(hvd.synchronize(other)[0], 2 * np.arange(4.0)[2 * rank : 2 * rank + 2])
    same(jax.random.key_data(hvd.synchronize(moved)), jax.random.key_data(jax.random.key(1)))
    same(hvd.synchronize(gathered)[0], np.array([0, 1]))
    same(hvd.synchronize(exchanged)[0], np.array([0, 1]))
    inside = jax.jit(lambda x: hvd.allreduce_async(x).wait())
    raises(ValueError, lambda: inside(jnp.ones(1)), "no handles inside jax.jit")
