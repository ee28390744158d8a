"""What every rank checks of `DistributedOptimizer` and `wrap`; `test_torch_optimizer.py` runs it.

A check is a function that asserts, with the decorator `check`. All of them share one launch, since
importing torch takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

RANKS = 2
CHECKS: dict[str, Callable[[], None]] = {}
ON_THREE_RANKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Add a function that is run on every rank."""
    CHECKS[function.__name__] = function
    return function


def check_on_three(function: Callable[[], None]) -> Callable[[], None]:
    """Add a function that is run on each of three ranks."""
    ON_THREE_RANKS[function.__name__] = function
    return function


def run_checks(checks: dict[str, Callable[[], None]]) -> dict[str, str]:
    """Run on every rank: the tracebacks of the checks that failed, by name."""
    # A rank that fails in the middle of a check must not stop the others for ever.
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "60"
    import torch

    import syrtos.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    failures = {}
    for name, function in checks.items():
        try:
            function()
        except Exception:
            failures[name] = traceback.format_exc()
        if not hvd.is_initialized():
            hvd.init()
        # By name, since a rank that has failed has made fewer unnamed calls.
        hvd.allreduce(torch.zeros(1), name=f"end of {name}")
    hvd.shutdown()
    return failures


@contextlib.contextmanager
def raises(kind: type[BaseException], *texts: str) -> Iterator[None]:
    """Fail unless this exception is raised, with all these texts (regular expressions) in it."""
    text = None
    try:
        yield
    except kind as error:
        text = str(error)
    assert text is not None, f"{kind.__name__} was not raised"
    for expected in texts:
        assert re.search(expected, text), f"{expected!r} is not in: {text}"


def flat(parameters: Any) -> Any:
    """All values of some tensors as one vector."""
    import torch

    return torch.cat([p.detach().to(torch.float64).flatten() for p in parameters])


def same_on_all_ranks(tensors: Any) -> bool:
    """Bit by bit."""
    import syrtos.torch as hvd

    return len(set(hvd.allgather_object(flat(tensors).numpy().tobytes()))) == 1


def assert_close(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    """Compare two lists of tensors."""
    difference = (flat(one) - flat(other)).abs().max().item()
    assert difference <= tolerance, f"they differ by {difference}"


def batches(steps: int, rows: int = 16, features: int = 8, seed: int = 0) -> tuple[Any, Any]:
    """Inputs and targets of a regression, for all ranks together."""
    import torch

    source = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, rows, features, generator=source)
    y = x @ torch.randn(features, 1, generator=source)
    return x, y + torch.randn(y.shape, generator=source) / 10


def mine(tensor: Any) -> Any:
    """Return this rank's rows of each step."""
    import syrtos.torch as hvd

    rows = tensor.shape[1] // hvd.size()
    return tensor[:, hvd.rank() * rows : (hvd.rank() + 1) * rows]


def network(features: int = 8, seed: int = 1) -> Any:
    """A small model; the same weights for the same seed."""
    import torch

    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(features, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    )


def fit(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Train a model on batches."""
    import torch

    for inputs, targets in zip(x, y, strict=True):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def scalar(value: float = 0.0) -> Any:
    """A model of one weight."""
    import torch

    return torch.nn.Parameter(torch.tensor([value]))
