"""Gloo's plug-in and torch's own Gloo in one process: whoever is loaded first, and however."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

# Both libraries reduce in turn; torch's symbols are global or not, and it comes first or second.
SCRIPT = """
    import os, sys
    import numpy as np

    order, flags, file = sys.argv[1], sys.argv[2], sys.argv[3]
    if flags == "global":
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)

    def torch_first():
        import torch.distributed as dist
        rank, size = int(os.environ["SYRTOS_RANK"]), int(os.environ["SYRTOS_SIZE"])
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)

    def ours_first():
        import syrtos.numpy as hvd
        hvd.init()
        hvd.allreduce(np.ones(4, np.float32), op=hvd.Sum)

    steps = [torch_first, ours_first] if order == "torch_first" else [ours_first, torch_first]
    for step in steps:
        step()

    import syrtos.numpy as hvd
    import torch
    import torch.distributed as dist

    for i in range(20):
        ours = hvd.allreduce(np.full(1000, hvd.rank() + i, np.float32), op=hvd.Sum)
        theirs = torch.full((1000,), float(hvd.rank() + i))
        dist.all_reduce(theirs)
        expected = sum(r + i for r in range(hvd.size()))
        right = (ours == expected).all() and (theirs == expected).all()
        assert right, (ours[0], theirs[0], expected)
    dist.destroy_process_group()
    hvd.shutdown()
    print("both right")
"""


@pytest.mark.parametrize("flags", ["local", "global"])
@pytest.mark.parametrize("order", ["torch_first", "ours_first"])
def test_both_give_the_right_sums(syrtosrun: Any, tmp_path: Path, order: str, flags: str) -> None:
    script = tmp_path / "beside.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ended = syrtosrun(
        "-np", "2", sys.executable, str(script), order, flags, str(tmp_path / "store"), timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("both right") == 2
