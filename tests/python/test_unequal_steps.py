"""A rank without more data leaves the script; those that wait are told, and the job fails."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

TORCH = """
    import torch
    import syrtos.torch as hvd

    hvd.init()
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    for _ in range(5 if hvd.rank() == 0 else 8):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    print("end of data")
"""

KERAS = """
    import numpy as np
    import keras
    import syrtos.keras as hvd

    hvd.init()
    rows = 10 if hvd.rank() == 0 else 16
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    model.fit(np.ones((rows, 4), "float32"), np.ones((rows, 1)), batch_size=2, verbose=0)
    print("end of data")
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(TORCH, id="torch", marks=pytest.mark.torch),
        pytest.param(KERAS, id="keras", marks=pytest.mark.keras),
    ],
)
def test_the_rank_that_waits_is_told(syrtosrun: Any, tmp_path: Path, script: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(script))
    ended = syrtosrun("-np", "2", sys.executable, str(file), timeout=60)
    assert ended.returncode != 0, ended.stdout + ended.stderr
    assert [line for line in ended.stdout.splitlines() if "end of data" in line] == [
        "[0]<stdout>:end of data"
    ]
    told = [line for line in ended.stderr.splitlines() if "has shut down" in line]
    assert any(line.startswith("[1]") and "rank 0" in line for line in told), ended.stderr
