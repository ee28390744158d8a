"""An optimizer of a user; apart from the checks, since it needs torch to be imported."""

from __future__ import annotations

from typing import Any

import torch


class Halving(torch.optim.Optimizer):
    """Its step takes no closure, and its constructor has no default."""

    kind = "halving"

    def __init__(self, params: Any, factor: float) -> None:
        super().__init__(params, {"factor": factor})

    @torch.no_grad()
    def step(self) -> str:
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["factor"] * p.grad
        return "stepped"
