"""Starts ranks without the launcher: a store in this process and the contract's variables."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass
class Ended:
    """How a rank ended."""

    code: int
    out: str
    err: str


class Job:
    """Processes of one script that find each other; a context manager that leaves none behind."""

    def __init__(self, script: str, ranks: int = 1, **environ: str) -> None:
        from syrtos import _core

        self._server = _core.TcpStoreServer("127.0.0.1")
        self._script = textwrap.dedent(script)
        self._ranks = ranks
        self._environ = environ
        self._job = uuid.uuid4().hex
        self.processes = [self._start(rank) for rank in range(ranks)]

    def _start(self, rank: int) -> subprocess.Popen[str]:
        numbers = {
            **{"SYRTOS_RANK": rank, "SYRTOS_SIZE": self._ranks},
            **{"SYRTOS_LOCAL_RANK": rank, "SYRTOS_LOCAL_SIZE": self._ranks},
            **{"SYRTOS_CROSS_RANK": 0, "SYRTOS_CROSS_SIZE": 1},
        }
        environ = {
            **os.environ,
            **{name: str(number) for name, number in numbers.items()},
            "SYRTOS_STORE": f"127.0.0.1:{self._server.port}",
            "SYRTOS_JOB_ID": self._job,
            "SYRTOS_HOST": "here",
            **self._environ,
        }
        return subprocess.Popen(
            [sys.executable, "-c", self._script],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self, timeout: float = 60.0) -> list[Ended]:
        ended = []
        for process in self.processes:
            out, err = process.communicate(timeout=timeout)
            ended.append(Ended(process.returncode, out, err))
        return ended

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self._server.close()


def run(script: str, ranks: int = 1, **environ: str) -> list[Ended]:
    with Job(script, ranks, **environ) as job:
        return job.wait()


def run_alone(script: str) -> Ended:
    """Run a script in a world of one, without any launch variables."""
    environ = {name: value for name, value in os.environ.items() if "SYRTOS_R" not in name}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ended(result.returncode, result.stdout, result.stderr)
