"""The backend of ``torch.distributed``: all of `torch_checks.process_groups`, and scripts."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest
from conftest import Syrtosrun
from ranks import run_ranks
from torch_checks.process_groups import CHECKS, RANKS

pytestmark = pytest.mark.torch


def body() -> dict[str, str]:
    """Run all checks on every rank: the tracebacks of those that failed."""
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "20"
    import torch
    import torch.distributed as dist

    import syrtos.torch.c10d  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("cpu:syrtos")
    gloo = dist.new_group(backend="gloo")
    failures = {}
    for name, function in CHECKS.items():
        try:
            function(dist.group.WORLD, gloo)
        except Exception:
            failures[name] = traceback.format_exc()
        dist.barrier()
    dist.destroy_process_group()
    # Once more in the same process.
    dist.init_process_group("cpu:syrtos", init_method="syrtos://")
    again = torch.ones(1)
    dist.all_reduce(again)
    assert again.item() == 2.0
    return failures  # the last group is left to the end of the process


@functools.cache
def launch() -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, timeout=200)
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("check", CHECKS)
def test_beside_gloo(check: str) -> None:
    outcome = launch()
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())


def test_a_script_with_plain_ddp_runs_under_syrtosrun(syrtosrun: Syrtosrun, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch
            import torch.distributed as dist
            import syrtos.torch.c10d

            dist.init_process_group("cpu:syrtos")
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
            model(torch.full((1, 2), dist.get_rank() + 1.0)).sum().backward()
            print(dist.get_rank(), model.module.weight.grad.tolist())
            if dist.get_rank() == 1:
                raise RuntimeError("this rank has had enough")
            dist.barrier()
            """
        )
    )
    result = syrtosrun("-np", "2", sys.executable, str(script), timeout=100)
    assert "0 [[1.5, 1.5]]" in result.stdout
    assert "1 [[1.5, 1.5]]" in result.stdout
    assert result.returncode != 0
    # The rank that waits is told why it waits in vain, unless the launcher has stopped it first.
    assert "this rank has had enough" in result.stderr


def test_torchs_own_variables_are_enough(tmp_path: Path, no_process_left: str) -> None:
    """As `torchrun` starts ranks: without the launcher of Syrtos."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os
            import torch
            import torch.distributed as dist
            import syrtos.torch.c10d

            store = dist.FileStore({str(tmp_path / "store")!r}, 2)
            rank = int(os.environ["RANK"])
            dist.init_process_group("cpu:syrtos", store=store, rank=rank, world_size=2)
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            print(tensor.tolist())
            dist.destroy_process_group()
            """
        )
    )
    processes = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        try:
            output, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            for one in processes:
                one.kill()
            raise
        assert "[2.0, 2.0, 2.0]" in output
        assert process.returncode == 0
