"""The example that users see first keeps its promises."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.keras, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "keras_digits.py"


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_digits_are_learned_on_two_ranks(backend: str) -> None:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "syrtos.launcher", "-np", "2", sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "KERAS_BACKEND": backend},
    )
    print(done.stdout[-1000:], done.stderr[-1000:], f"{time.monotonic() - start:.0f} s")
    assert done.returncode == 0
    accuracy = re.search(r"test accuracy: ([\d.]+)%", done.stdout)
    assert accuracy
    assert float(accuracy[1]) >= 95.0
    assert re.search(r"images/s: [\d,]+ on 2 ranks, [\d,]+ in one process", done.stdout)
    assert "weights identical on all ranks: yes" in done.stdout
    assert "[1]<stdout>" not in done.stdout  # the progress bar is rank 0's
    assert len(EXAMPLE.read_text().splitlines()) < 100
