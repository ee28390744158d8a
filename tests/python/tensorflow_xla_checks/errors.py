"""Errors: while a function is traced, of a request, and of an engine that has ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorflow_xla_checks import RANKS, check, compiled, error_class, last_check, raises, same


@check
def opposite_orders_are_an_error_at_once() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    order = ["first", "second"] if hvd.rank() == 0 else ["second", "first"]

    def step(x: Any) -> Any:
        return [hvd.allreduce(x, name=name) for name in order]

    def kinds(x: Any) -> Any:
        if hvd.rank() == 0:
            return hvd.broadcast(hvd.allreduce(x), 0)
        return hvd.allreduce(hvd.broadcast(x, 0))

    error = error_class("FailedPreconditionError")
    fine = compiled(hvd.allreduce)
    for function, words in (
        (step, ('"first"', '"second"', "same order on every rank")),
        (kinds, ("calls allreduce", "broadcast")),
    ):
        program = compiled(function)
        for _ in range(2):
            raises(error, lambda program=program: program(tf.ones([3])), *words)
            same(fine(tf.ones([3])), np.ones(3))


@check
def disagreements_are_raised_on_all_ranks_and_the_next_program_works() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    failed, invalid = error_class("FailedPreconditionError"), error_class("InvalidArgumentError")
    cases = [
        (lambda x: hvd.allreduce(x, name="kernel"), (4, 7 + rank), failed,
         ('allreduce "kernel"', "(4, 7)", "(4, 8)", "rank 0", "rank 1")),
        (lambda x: hvd.allreduce(x, op=rank), (2,), failed, ("op=",)),
        (lambda x: hvd.broadcast(x, rank), (2,), failed, ("root_rank 0", "root_rank 1")),
        (lambda x: hvd.allgather(x), (2 + rank, 3), failed, ("(5, 3)", "equally many rows")),
        (lambda x: hvd.alltoall(x), (2 + 2 * rank, 3), failed, ("equally many rows",)),
        (lambda x: hvd.broadcast(x, 7), (2,), invalid, ("root_rank 7",)),
        (lambda x: hvd.allreduce(x > 0), (2,), invalid, ("bool",)),
        (lambda x: hvd.barrier() if rank else hvd.allreduce(x), (2,), failed, ("barrier",)),
    ]  # fmt: skip
    fine = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum))
    for function, shape, error, words in cases:
        program = compiled(function)
        for _ in range(2):
            raises(error, lambda p=program, s=shape: p(tf.ones(s)), *words)
            same(fine(tf.ones([3])), np.full(3, RANKS, float))
            same(hvd.allreduce(tf.ones([3]), op=hvd.Sum), np.full(3, RANKS, float))


@check
def what_xla_cannot_do_is_refused_while_tracing() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    def trace(function: Any, *shape: Any) -> Any:
        return compiled(function).get_concrete_function(tf.TensorSpec(shape, tf.float32))

    cases = [
        (hvd.allgather, (), ("allgather", "scalar", "Reshape")),
        (hvd.alltoall, (3,), ("3 rows", "2 ranks", "jit_compile")),
        (lambda x: hvd.alltoall(x, splits=[1, 3]), (4,), ("splits=[1, 3]", "2 rows here")),
        (lambda x: hvd.alltoall(x, tf.cast(x, tf.int32)), (2,), ("splits=unknown", "Leave splits")),
        (lambda x: hvd.allreduce(x, name="batch"), (None, 3),
         ('allreduce "batch"', "tensor 0", "(None, 3)", "tf.ensure_shape")),
        (lambda x: hvd.grouped_allreduce([x, x], tensor_names=["a", "b"]), (None,), ('"a"',)),
    ]  # fmt: skip
    for function, shape, words in cases:
        raises(ValueError, lambda f=function, s=shape: trace(f, *s), *words)
    unavailable = hvd.errors.BackendUnavailableError
    raises(unavailable, lambda: trace(lambda x: x + hvd.local_rank_op(), 1), "hvd.local_rank()")
    with tf.Graph().as_default():
        program = compiled(hvd.allreduce)
        raises(unavailable, lambda: program(tf.ones([2])), "tf.compat.v1", "jit_compile=True")
    # A shape that is told instead of guessed.
    told = compiled(lambda x: hvd.allreduce(tf.ensure_shape(x, [2]), op=hvd.Sum))
    told = told.get_concrete_function(tf.TensorSpec([None], tf.float32))
    same(told(tf.ones([2])), np.full(2, RANKS, float))


@check
def releases_and_libraries_that_do_not_fit_are_named() -> None:
    import pathlib

    from syrtos.errors import BackendUnavailableError
    from syrtos.tensorflow import _library, _xla_library

    assert _xla_library.minor_of("2.21.0-rc1") == (2, 21)
    newest = ".".join(map(str, _library.NEWEST))
    nowhere = pathlib.Path("/nowhere/_tensorflow_xla.so")
    function = "syrtos_tensorflow_xla_register_untyped"
    raises(
        BackendUnavailableError, lambda: _xla_library._registered(function, path=nowhere),
        "/nowhere/_tensorflow_xla.so", "Reinstall",
    )  # fmt: skip
    if _xla_library.is_typed("2.18.0"):  # not replaced by this launch
        assert not _xla_library.is_typed("2.17.1")
        newer = f"{_library.NEWEST[0]}.{_library.NEWEST[1] + 1}.0"
        words = (newest, newer, "jit_compile=False")
        raises(BackendUnavailableError, lambda: _xla_library.is_typed(newer), *words)


@last_check
def a_rank_that_shuts_down_fails_the_others() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    step = compiled(lambda x: (hvd.allreduce(x, op=hvd.Sum), hvd.size_op())[0])
    same(step(tf.ones([2])), np.full(2, RANKS, float))
    if hvd.rank() == 0:
        raises(error_class("AbortedError"), lambda: step(tf.ones([2])), "shut down")
    hvd.shutdown()
    raises(error_class("FailedPreconditionError"), lambda: step(tf.ones([2])), "init()")
    hvd.init()
    same(step(tf.ones([2])), np.full(2, RANKS, float))
