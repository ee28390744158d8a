"""Graphs of ``tf.compat.v1``: sessions, placeholders, ref and resource variables."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tensorflow_checks import RANKS, check


@contextlib.contextmanager
def session_of_new_graph() -> Iterator[Any]:
    import tensorflow as tf

    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        yield session


@contextlib.contextmanager
def warnings_of_syrtos() -> Iterator[list[str]]:
    texts: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler = Collect()
    logging.getLogger("syrtos").addHandler(handler)
    try:
        yield texts
    finally:
        logging.getLogger("syrtos").removeHandler(handler)


@check
def global_variables_of_all_kinds_are_broadcast_again_and_again() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    v1, rank = tf.compat.v1, hvd.rank()
    with session_of_new_graph() as session, warnings_of_syrtos() as warnings:
        v1.get_variable("ref", initializer=[float(rank)] * 3, use_resource=False)
        v1.get_variable("resource", initializer=[[rank + 0.5]], use_resource=True)
        v1.get_variable("flag", initializer=rank == 1, dtype=tf.bool, use_resource=False)
        v1.get_variable("label", initializer=f"rank {rank}")
        step = v1.train.get_or_create_global_step()
        if rank == 1:
            v1.get_variable("only_here", initializer=7.0)
        everything = {v.op.name: v for v in v1.global_variables()}
        broadcast = hvd.broadcast_global_variables(1)
        set_step = step.assign(100 + rank)
        disturb = everything["resource"].assign([[-1.0 - rank]])
        session.run(v1.global_variables_initializer())
        session.graph.finalize()
        for _ in range(3):
            session.run(set_step)
            session.run(disturb)
            session.run(broadcast)
            values = session.run(everything)
            assert values["ref"].tolist() == [1.0, 1.0, 1.0]
            assert values["resource"].tolist() == [[-2.0]]
            assert bool(values["flag"]) is True
            assert values["global_step"] == 101
            assert values["global_step"].dtype == np.int64
            assert values["label"] == f"rank {rank}".encode()
            assert values.get("only_here", 7.0) == 7.0
    text = "\n".join(warnings)
    assert '"label" has the type string' in text
    assert "rank 1 has variables that not all ranks have" in text
    assert "only_here" in text
    assert "resource" not in text
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)


@check
def the_hook_broadcasts_when_a_session_begins() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    v1 = tf.compat.v1
    hook = hvd.BroadcastGlobalVariablesHook(0, device="/cpu:0")
    for number in range(2):  # the second time in another graph
        with tf.Graph().as_default():
            variable = v1.get_variable("v", initializer=[10.0 * number + hvd.rank()])
            v1.train.get_or_create_global_step()
            with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                assert session.run(variable).tolist() == [10.0 * number]


@check
def chosen_variables_can_be_broadcast_one_by_one() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    v1, rank = tf.compat.v1, hvd.rank()
    with session_of_new_graph() as session:
        chosen = [
            v1.get_variable("a", initializer=[rank, 1], trainable=False),
            v1.get_variable("b", initializer=float(rank), use_resource=False),
        ]
        other = v1.get_variable("c", initializer=float(rank))
        assigned = [v1.assign(v, hvd.broadcast(v, root_rank=0)) for v in chosen]
        session.run(v1.global_variables_initializer())
        session.run(assigned)
        assert [v.tolist() for v in session.run(chosen)] == [[0, 1], 0.0]
        assert session.run(other) == rank
        grouped = hvd.broadcast_variables([other], root_rank=1, inplace=True)
        assert session.run(grouped) is None
        assert session.run(other) == 1.0


@check
def metrics_fed_by_placeholders_are_summed() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    with session_of_new_graph() as session:
        fed = [tf.compat.v1.placeholder(tf.int32, []) for _ in range(2)]
        with pytest.warns(DeprecationWarning, match="average"):
            sums = [hvd.allreduce(x, average=False) for x in fed]
        for step in range(3):
            values = session.run(sums, dict(zip(fed, [100 + step, rank + step], strict=True)))
            assert values == [RANKS * (100 + step), 1 + RANKS * step]


@check
def two_collectives_of_a_run_may_start_in_any_order() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    with session_of_new_graph() as session:
        has_data, has_error = (tf.compat.v1.placeholder(tf.int32, []) for _ in range(2))
        with_data = hvd.allreduce(has_data, op=hvd.Sum, name="has_data")
        with_error = hvd.allreduce(has_error, op=hvd.Max, name="has_error")
        fetches = [with_data, with_error] if rank == 0 else [with_error, with_data]
        for step in range(200):
            feeds = {has_data: int(step < 100 + rank), has_error: int(step == 150 and rank == 1)}
            data, error = session.run(fetches, feeds)[:: 1 if rank == 0 else -1]
            assert data == int(step < 100) + int(step < 101)
            assert error == int(step == 150)


@check
def gradients_of_a_graph_have_the_same_form_as_eager_ones() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    is_root = float(rank == 1)
    with session_of_new_graph() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2])
        cases = [
            (hvd.allreduce(x), 1.0),
            (hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.25, postscale_factor=2.0), RANKS / 2),
            (hvd.allgather(x), 1.0),
            (hvd.broadcast(x, 1), is_root),
            (hvd.alltoall(x), 1.0),
            (hvd.alltoall(x, [1, 3])[0], 1.0),
            (hvd.reducescatter(x, op=hvd.Sum), RANKS),
            (hvd.reducescatter(x), 1.0),
        ]
        grads = [tf.gradients(y, x)[0] for y, _ in cases]
        for _ in range(2):
            values = session.run(grads, {x: np.ones([4, 2])})
            for grad, (_, expected) in zip(values, cases, strict=True):
                np.testing.assert_array_equal(grad, np.full([4, 2], expected))
        # Groups, of whose outputs one is used.
        a, b = tf.ones([2]), tf.ones([3], tf.float64)
        for outputs in (hvd.grouped_allreduce([a, b]), hvd.grouped_allgather([a, b])):
            assert session.run(tf.gradients(outputs[1], b)[0]).tolist() == [1.0] * 3


@check
def branches_and_loops_of_a_graph_have_names_of_their_own() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    with session_of_new_graph() as session:
        flag = tf.compat.v1.placeholder(tf.bool, [])
        x = tf.constant(hvd.rank() + 1.0)
        # Both are in flight at a time, in no order, and their nodes have equal names inside.
        small = tf.cond(flag, lambda: hvd.allreduce(x, op=hvd.Sum), lambda: x)
        big = tf.cond(flag, lambda: hvd.allreduce(x, op=hvd.Max), lambda: x)
        loop = tf.while_loop(
            lambda i, y: i < 4, lambda i, y: (i + 1, hvd.allreduce(y, op=hvd.Sum)), [0, x]
        )
        for _ in range(20):
            values = session.run([small, big, loop[1]], {flag: True})
            assert values == [3.0, 2.0, 3.0 * RANKS**3]
        assert session.run([small, big], {flag: False}) == [hvd.rank() + 1.0] * 2


@check
def sparse_tensors_and_ranks_in_a_session() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    with session_of_new_graph() as session:
        table = tf.compat.v1.get_variable("table", initializer=np.ones([4, 2], np.float32))
        loss = (rank + 1.0) * tf.reduce_sum(tf.gather(table, list(range(rank + 1))))
        (slices,) = tf.gradients(loss, [table])
        assert isinstance(slices, tf.IndexedSlices)
        mean, total = hvd.allreduce(slices), hvd.allreduce(slices, op=hvd.Sum)
        session.run(tf.compat.v1.global_variables_initializer())
        rows = np.array([[3.0] * 2, [2.0] * 2, [0.0] * 2, [0.0] * 2])
        for result, expected in ((mean, rows / 2), (total, rows)):
            dense = session.run(tf.convert_to_tensor(result))
            np.testing.assert_array_equal(dense, expected)
        numbers = [
            *(hvd.size_op(), hvd.rank_op(), hvd.local_rank_op(), hvd.local_size_op("mine")),
            hvd.process_set_included_op(),
        ]
        assert session.run(numbers) == [RANKS, rank, rank, RANKS, 1]
        # The learning rate that follows the number of ranks.
        assert session.run(0.1 * tf.cast(hvd.size_op(), tf.float64)) == pytest.approx(0.2)


@check
def objects_need_no_session() -> None:
    import syrtos.tensorflow as hvd

    rank = hvd.rank()
    with session_of_new_graph() as session:
        assert hvd.broadcast_object({"r": rank}, root_rank=1, session=session) == {"r": 1}
        texts = hvd.allgather_object(["", "größer ☃"][rank], session=session)
        assert texts == ["", "größer ☃"]
        broadcast = hvd.broadcast_object_fn(root_rank=1, session=session, name="again")
        assert [broadcast(rank + i) for i in range(3)] == [1, 2, 3]
        assert len(session.graph.get_operations()) == 0


@check
def mistakes_in_a_graph_are_raised_on_all_ranks() -> None:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    with session_of_new_graph() as session:
        different = hvd.allreduce(tf.ones([2 + hvd.rank()]), name="different")
        fine = hvd.allreduce(tf.ones([2]), name="fine", op=hvd.Sum)
        for _ in range(2):
            with pytest.raises(tf.errors.FailedPreconditionError, match="different"):
                session.run(different)
            assert session.run(fine).tolist() == [2.0, 2.0]
        slices = tf.IndexedSlices(tf.ones([1, 2]), [0], [4, 2])
        with pytest.raises(NotImplementedError, match="op=Adasum"):
            hvd.grouped_allreduce([slices], op=hvd.Adasum)
