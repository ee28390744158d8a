"""Errors: of a request, of this rank alone, and of an engine that has ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_checks import RANKS, check, last_check, raises, same


@check
def disagreements_are_raised_on_all_ranks_and_the_next_program_works() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    error = jax.errors.JaxRuntimeError
    weights = jnp.eye(600)
    cases = [
        (lambda x: hvd.allreduce(x, name="kernel"), (4, 7 + rank),
         ('allreduce "kernel"', "(4, 7)", "(4, 8)", "rank 0", "rank 1")),
        (lambda x: hvd.allreduce({"w": x, "b": x[0]}), (4, 7 + rank), ("['b']", "(7,)", "(8,)")),
        (lambda x: hvd.allreduce(x, op=rank), (2,), ("op=",)),
        (lambda x: hvd.broadcast(x, rank), (2,), ("root_rank 0", "root_rank 1")),
        (lambda x: hvd.allgather(x), (2 + rank, 3), ("(5, 3)", "equally many rows")),
        (lambda x: hvd.alltoall(x), (2 + 2 * rank, 3), ("equally many rows",)),
        (lambda x: hvd.broadcast(x, 7), (2,), ("root_rank 7",)),
        (lambda x: hvd.allreduce(x > 0), (2,), ("bool",)),
        # Long enough for JAX not to wait for it: the next program is started before it fails.
        (lambda x: hvd.allreduce(x @ weights @ weights), (600 + rank, 600), ("(601, 600)",)),
    ]  # fmt: skip
    for function, shape, words in cases:
        compiled, fine = jax.jit(function), jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
        for _ in range(2):
            raises(error, lambda c=compiled, s=shape: c(jnp.ones(s)), *words)
            same(fine(jnp.ones(3)), np.full(3, RANKS, float))
            same(hvd.allreduce(jnp.ones(3), op=hvd.Sum), np.full(3, RANKS, float))


@check
def own_mistakes_are_raised_where_they_are_made() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    x = jnp.ones(3)
    raises(TypeError, lambda: hvd.allreduce("text"), "allreduce", "str")
    raises(TypeError, lambda: hvd.allreduce({"a": {"b": object()}}), "['a']['b']", "object")
    raises(TypeError, lambda: hvd.grouped_allreduce(x), "list or tuple")
    raises(TypeError, lambda: hvd.allreduce(x, process_set=[0]), "ProcessSet")
    raises(ValueError, lambda: hvd.allreduce(x, op=77), "no reduce op")
    raises(TypeError, lambda: hvd.broadcast(x, "first"), "root_rank")
    raises(ValueError, lambda: jax.jit(hvd.allgather)(jnp.array(1.0)), "scalar", "Reshape")
    raises(ValueError, lambda: jax.jit(hvd.alltoall)(x), "3 rows", "2 ranks")
    with_splits = jax.jit(lambda x: hvd.alltoall(x, splits=[1, 2]))
    raises(ValueError, lambda: with_splits(x), "splits", "jax.jit")
    small = jax.jit(lambda x: hvd.broadcast(x.astype(jnp.int4), 0))
    raises(ValueError, lambda: small(x), "int4", "int8")
    raises(TypeError, lambda: hvd.alltoall([x, x], splits=[1, 2]), "one array")
    same(hvd.allreduce(x), np.ones(3))


@check
def constants_in_a_program_are_reduced_each_time_it_runs() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    constant = jnp.full(2, 1.0 + hvd.rank())
    calls = jax.make_jaxpr(lambda: hvd.allreduce(constant, op=hvd.Sum))()
    assert "syrtos_collective" in str(calls)
    same(jax.jit(lambda: hvd.allreduce(constant, op=hvd.Sum))(), np.full(2, 3.0))
    same(jax.jit(lambda: hvd.allreduce(2, op=hvd.Sum))(), np.array(4))


@check
def programs_are_for_the_cpu() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    traced = jax.jit(lambda x: hvd.allreduce(x)).trace(jnp.ones(2))
    raises(
        hvd.errors.BackendUnavailableError,
        lambda: traced.lower(lowering_platforms=("cuda",)),
        "cuda",
        "JAX_PLATFORMS=cpu",
    )


@last_check
def a_rank_that_shuts_down_fails_the_others() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    error = jax.errors.JaxRuntimeError
    step: Any = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    same(step(jnp.ones(2)), np.full(2, RANKS, float))
    if hvd.rank() == 0:
        raises(error, lambda: step(jnp.ones(2)), "shut down", "ABORTED")
    hvd.shutdown()
    raises(error, lambda: step(jnp.ones(2)), "init()")
    raises(hvd.errors.NotInitializedError, lambda: hvd.allreduce(jnp.ones(2)), "init()")
    raises(hvd.errors.NotInitializedError, lambda: jax.jit(hvd.allgather)(jnp.ones(2)), "init()")
    hvd.init()
    same(step(jnp.ones(2)), np.full(2, RANKS, float))
