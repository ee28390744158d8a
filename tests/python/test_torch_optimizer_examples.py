"""The examples for torch keep their promises."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
#: The alias, in case it is not installed.
ALIAS = ROOT / "compat" / "horovod" / "src"


@pytest.mark.parametrize(
    ("example", "least"),
    [
        ("torch_digits", 95.0),
        ("torch_amp_accumulation", 95.0),
        ("torch_sync_batch_norm", 95.0),
        ("torch_horovod_style", 90.0),
    ],
)
def test_digits_are_learned_on_two_ranks(example: str, least: float, syrtosrun: Any) -> None:
    path = ROOT / "examples" / f"{example}.py"
    paths = [str(ALIAS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = syrtosrun(
        "-np",
        "2",
        sys.executable,
        str(path),
        timeout=200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    print(done.stdout[-1000:], done.stderr[-1000:])
    assert done.returncode == 0
    accuracy = re.search(r"test accuracy: ([\d.]+)%", done.stdout)
    assert accuracy
    assert float(accuracy[1]) >= least
    assert "weights identical on all ranks: yes" in done.stdout
    assert "[1]<stdout>" not in done.stdout  # rank 0 reports
    assert len(path.read_text().splitlines()) < 100
