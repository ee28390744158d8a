"""A rank that comes late is named in a report as often as asked, and the operation completes."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
    import time
    import numpy as np
    import syrtos.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        time.sleep(3.5)
    got = hvd.allreduce(np.full(3, hvd.rank() + 1.0), op=hvd.Sum, name="late_tensor")
    assert (got == 3.0).all(), got
"""


@pytest.mark.parametrize(
    ("setting", "least", "most"),
    # One report a second at most: 3.5 s of waiting, and some for a busy machine.
    [
        ({"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}, 1, 20),
        ({"HOROVOD_STALL_CHECK_DISABLE": "1"}, 0, 0),
    ],
    ids=["reported", "disabled"],
)
def test_a_late_rank_is_reported(
    syrtosrun: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: dict[str, str],
    least: int,
    most: int,
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "late.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ended = syrtosrun("-np", "2", sys.executable, str(script), timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    reports = [line for line in ended.stderr.splitlines() if "late_tensor" in line]
    assert least <= len(reports) <= most, ended.stderr
    for line in reports:
        assert "waiting for rank 1" in line, line
        assert line.startswith("[0]"), line


VALIDATION = """
    import numpy as np
    import keras
    import syrtos.keras as hvd

    hvd.init()
    x = np.ones((16, 4), "float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer=optimizer, loss="mse", metrics=["mean_absolute_error"])
    model.fit(
        x, x[:, :1], epochs=2, batch_size=8, verbose=0,
        validation_data=(x, x[:, :1]) if hvd.rank() == 0 else None,
        callbacks=[hvd.callbacks.MetricAverageCallback()],
    )
"""


@pytest.mark.keras
def test_validation_on_one_rank_is_reported_with_the_metrics_name(
    syrtosrun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "1")
    monkeypatch.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "4")
    script = tmp_path / "validation.py"
    script.write_text(textwrap.dedent(VALIDATION))
    ended = syrtosrun("-np", "2", sys.executable, str(script), timeout=120)
    assert ended.returncode != 0, ended.stdout + ended.stderr
    reports = [line for line in ended.stderr.splitlines() if "WARNING" in line]
    named = [line for line in reports if "mean_absolute_error" in line]
    assert named, ended.stderr
    assert all("waiting for rank 1" in line for line in named), named
