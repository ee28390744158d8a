"""The examples for TensorFlow keep their promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["tf_custom_loop.py", "tf1_graph.py"])
def test_digits_are_learned_on_two_ranks(name: str) -> None:
    example = EXAMPLES / name
    done = subprocess.run(
        [sys.executable, "-m", "syrtos.launcher", "-np", "2", sys.executable, str(example)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    print(done.stdout[-1000:], done.stderr[-1000:])
    assert done.returncode == 0
    accuracy = re.search(r"test accuracy: ([\d.]+)%", done.stdout)
    assert accuracy
    assert float(accuracy[1]) >= 95.0
    assert "weights identical on all 2 ranks: yes" in done.stdout
    assert "[1]<stdout>" not in done.stdout  # rank 0 alone reports
    assert len(example.read_text().splitlines()) < 100
