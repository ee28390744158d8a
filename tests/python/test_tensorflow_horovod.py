"""What scripts written for Horovod look for in graphs, under the alias ``horovod.tensorflow``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import syrtos

pytestmark = pytest.mark.tensorflow

LIBRARY = Path(syrtos.__file__).parent / "_tensorflow_horovod.so"
ALIAS = Path(__file__).parents[2] / "compat" / "horovod" / "src"


def run_python(code: str, *arguments: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(ALIAS)!r})\n{code}\nprint('fine')"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.endswith("fine\n"), done.stdout + done.stderr


def test_types_and_names_of_nodes_begin_with_horovod() -> None:
    run_python(
        """
import tensorflow as tf
import syrtos.tensorflow as own
with tf.Graph().as_default():
    assert own.allreduce(tf.ones([1])).op.type == "SyrtosAllreduce"
import horovod.tensorflow as hvd
from horovod.tensorflow import mpi_ops
assert hvd is own
hvd.init()
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    x = tf.constant([[2.0]], name="x")
    with tf.name_scope("scope"):
        ys = [
            hvd.allreduce(x), hvd.grouped_allreduce([x, x])[1], hvd.allgather(x),
            hvd.broadcast(x, 0), hvd.alltoall(x), hvd.alltoall(x, [1])[0],
            hvd.reducescatter(x), hvd.grouped_allgather([x])[0],
            mpi_ops._allreduce(x, prescale_factor=1.0), mpi_ops._grouped_allreduce([x])[0],
            mpi_ops._reducescatter(x), mpi_ops._grouped_reducescatter([x])[0],
        ]
    for y in ys:
        assert y.op.type.startswith("Horovod"), y.op
        assert y.op.name.startswith("scope/" + y.op.type + "_x_0"), y.op
        assert tf.gradients(y, x)[0] is not None
    assert len({y.op.name for y in ys}) == len(ys)
    assert hvd.allreduce(x, name="mine").op.name == "mine"
    assert hvd.allreduce(x, name="odd name:0").op.name == "odd_name_0"
    assert [v.tolist() for v in session.run(ys)] == [[[2.0]]] * len(ys)
    assert session.run(tf.gradients(ys[0], x))[0].tolist() == [[1.0]]
    assert session.run([hvd.size_op(), hvd.rank_op()]) == [1, 0]
v = tf.Variable([3.0])
step = tf.function(lambda: hvd.allreduce(v, op=hvd.Sum))
assert step().numpy().tolist() == [3.0]
types = [op.type for op in step.get_concrete_function().graph.get_operations()]
assert "HorovodAllreduce" in types
with tf.GradientTape() as tape:
    y = hvd.allreduce(v)
assert tape.gradient(y, v).numpy().tolist() == [1.0]
assert mpi_ops._normalize_name("a/b:0") == "a_b_0"
for name in ("gradient_aggregation", "gradient_aggregation_eager", "functions", "compression",
             "sync_batch_norm", "elastic"):
    module = __import__("horovod.tensorflow." + name, fromlist=["x"])
    assert module.__name__ == "syrtos.tensorflow." + name
"""
    )


def test_ops_of_horovod_itself_are_not_registered_a_second_time(tmp_path: Path) -> None:
    # Another library with ops of these names stands for Horovod's own.
    shutil.copy(LIBRARY, tmp_path / "other.so")
    for file in LIBRARY.parent.glob("libsyrtos*.so"):
        shutil.copy(file, tmp_path)
    run_python(
        """
import pytest
import tensorflow as tf
tf.load_op_library(sys.argv[1])
import syrtos.tensorflow as own
from syrtos.tensorflow import ops
with pytest.raises(ImportError, match="not beside Horovod"):
    ops.use_prefix("Horovod")
assert ops.prefix() == "Syrtos"
own.init()
assert own.allreduce([1.0]).numpy().tolist() == [1.0]
""",
        str(tmp_path / "other.so"),
    )
