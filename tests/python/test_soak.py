"""What must hold over and over: random programs, many lives of an engine, ranks that are killed.

CI runs a tenth; ``./dev soak`` sets SYRTOS_SOAK=1 for the full counts. Everything is seeded.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soak_programs
from ranks import run_ranks

FULL = os.environ.get("SYRTOS_SOAK") == "1"
SEED = int(os.environ.get("SYRTOS_SOAK_SEED", "0"))


def count(full: int) -> int:
    """Return the full count under ``./dev soak``, else a tenth."""
    return full if FULL else max(1, full // 10)


# 1,000 programs in all.
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("ranks", "programs"), [(2, 400), (3, 300), (4, 300)])
def test_random_programs_equal_numpy(ranks: int, programs: int) -> None:
    first = SEED * 100000 + ranks * 10000
    seeds = list(range(first, first + count(programs)))
    results = run_ranks(soak_programs.run_programs, ranks, seeds, timeout=1700)
    wrong = [text for _, texts in results for text in texts]
    assert not wrong, wrong[0]
    print(f"{len(seeds)} programs, {sum(n for n, _ in results)} collectives on {ranks} ranks")


def live_many_lives(rounds: int) -> list[tuple[int, int]]:
    """Threads and descriptors of this process after each round of init, allreduce and shutdown."""
    import syrtos.numpy as hvd

    sizes = []
    for round_ in range(rounds):
        hvd.init()
        got = hvd.allreduce(np.full(1000, hvd.rank() + round_, dtype=np.float32), op=hvd.Sum)
        assert got[0] == sum(range(hvd.size())) + hvd.size() * round_
        hvd.shutdown()
        # The kernel lists a thread for a moment after it has been joined.
        for _ in range(500 if len(sizes) > 2 else 0):
            if entries("task") <= sizes[2][0]:
                break
            time.sleep(0.01)
        sizes.append((entries("task"), entries("fd")))
    return sizes


def entries(folder: str) -> int:
    return len(list(Path("/proc/self", folder).iterdir()))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_lives_of_an_engine_leave_no_thread_and_no_descriptor() -> None:
    for sizes in run_ranks(live_many_lives, 2, count(100), timeout=500):
        assert sizes[-1] == sizes[2], sizes


KILLED = """
    import os, random, signal, sys, threading, time
    import numpy as np
    import syrtos.numpy as hvd

    hvd.init()
    victim, after, workers = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    children = []
    for _ in range(workers):  # as a DataLoader forks its workers, with the engine running
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        children.append(pid)

    def kill():
        time.sleep(after)
        print(f"killed {time.time():.6f}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    if hvd.rank() == victim:
        threading.Thread(target=kill, daemon=True).start()
    x = np.ones(20000, np.float32)
    try:
        for step in range(10**9):
            hvd.allreduce(x, name=f"x{step % 5}")
    except Exception as error:
        print(f"raised {time.time():.6f} {type(error).__name__}: {error}", flush=True)
        raise
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("workers", [0, 2], ids=["alone", "with_forked_children"])
def test_a_killed_rank_is_named_to_the_others_and_nothing_is_left(
    syrtosrun: Any, tmp_path: Path, workers: int
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    random = np.random.default_rng([SEED, workers])
    latencies = []
    for _ in range(count(50)):
        ranks = int(random.integers(2, 4))
        victim = int(random.integers(ranks))
        after = float(random.random() * 0.5)
        ended = syrtosrun(
            "-np",
            str(ranks),
            sys.executable,
            str(script),
            str(victim),
            f"{after}",
            str(workers),
            timeout=60,
        )
        assert ended.returncode == 137, ended.stdout + ended.stderr
        killed = float(re.findall(r"killed ([\d.]+)", ended.stdout)[0])
        raised = re.findall(r"raised ([\d.]+) (\w+): (.*)", ended.stdout)
        assert len(raised) == ranks - 1, ended.stdout + ended.stderr
        for when, kind, text in raised:
            assert kind == "PeerLostError", (kind, text)
            assert f"rank {victim} " in text, text
            latencies.append(float(when) - killed)
    # A generous bound against hanging; the figure is printed for the record.
    assert max(latencies) < 20
    print(f"{len(latencies)} survivors raised after at most {max(latencies):.3f} s")
