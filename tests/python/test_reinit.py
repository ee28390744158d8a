"""`init` where there is an engine already."""

from __future__ import annotations

from by_hand import run

ANEW = """
import numpy as np
import syrtos.numpy as hvd

hvd.init()
hvd.allreduce(np.ones(2), name="first")
if hvd.rank() == 1:
    hvd.shutdown()
else:
    try:
        hvd.barrier()
        raise SystemExit("a barrier without rank 1")
    except hvd.errors.ShutdownError:
        pass
for _ in range(2):  # the second is harmless
    hvd.init()
    np.testing.assert_array_equal(hvd.allreduce(np.ones(2), op=hvd.Sum, name="again"), [2, 2])
"""


def test_init_replaces_an_engine_whose_ranks_have_left() -> None:
    for ended in run(ANEW, 2):
        assert ended.code == 0, ended.err
