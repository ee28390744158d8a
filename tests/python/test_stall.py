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
