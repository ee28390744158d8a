"""Training on two ranks with half batches equals plain torch in one process with whole batches."""

from __future__ import annotations

import functools
from typing import Any

from torch_optimizer_checks import CHECKS, RANKS, batches, flat, mine, network

STEPS, ROWS = 50, 16

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.02, "momentum": 0.9}),
    "adam": ("Adam", {"lr": 0.01}),
    "adamw": ("AdamW", {"lr": 0.01, "weight_decay": 0.05}),
    "rmsprop": ("RMSprop", {"lr": 0.003}),
    "lbfgs": ("LBFGS", {"lr": 0.3, "max_iter": 3, "history_size": 4}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipping": {},
    "accumulation": {"backward_passes_per_step": 4},
    "bf16_autocast": {},
    "scaler": {},
    "two_parameter_groups": {},
    "groups_number": {"groups": 2},
    "groups_lists": {},
    "predivide": {"gradient_predivide_factor": 2.0},
}
#: torch forbids these.
IMPOSSIBLE = {("lbfgs", "scaler"), ("lbfgs", "two_parameter_groups")}
#: LBFGS takes gradients for the exact derivatives of the loss. Cut or rounded ones lead it astray,
#: in one process as well, so only the ranks' agreement is checked.
ASTRAY = {("lbfgs", "clipping"), ("lbfgs", "bf16_autocast")}
INF_STEP = 10


class Case:
    """One training, on all ranks together or in one process."""

    def __init__(self, optimizer: str, option: str, distributed: bool) -> None:
        import torch

        import syrtos.torch as hvd

        self.option = option
        self.distributed = distributed
        self.passes = OPTIONS[option].get("backward_passes_per_step", 1)
        x, y = batches(STEPS * self.passes, ROWS)
        self.model = network()
        if optimizer == "lbfgs":
            # It remembers gradients, so it wants one function. Where that is not convex, the steps
            # of one process part too as soon as a bit is changed; see lbfgs_in_double_precision.
            self.model = torch.nn.Sequential(self.model[0], self.model[2])
            x, y = (t[: self.passes].repeat(STEPS, 1, 1) for t in (x, y))
        if option == "scaler":
            x[INF_STEP, -1] = float("inf")  # in the last rank's share
        self.x, self.y = (mine(x), mine(y)) if distributed else (x, y)
        name, arguments = OPTIMIZERS[optimizer]
        parameters: Any = self.model.parameters()
        if option == "two_parameter_groups":
            first, second = self.model[0], self.model[-1]
            parameters = [
                {"params": first.parameters(), "lr": 0.005},
                {"params": second.parameters(), "weight_decay": 0.1},
            ]
        self.optimizer = getattr(torch.optim, name)(parameters, **arguments)
        if distributed:
            options = dict(OPTIONS[option])
            if option == "groups_lists":
                weights = [p for n, p in self.model.named_parameters() if "weight" in n]
                options["groups"] = [weights]
            self.optimizer = hvd.DistributedOptimizer(
                self.optimizer, self.model.named_parameters(), **options
            )
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=1024.0, growth_interval=15, enabled=option == "scaler"
        )

    def gradients(self, step: int) -> Any:
        """Compute the gradients of a step; return the loss."""
        import torch

        self.optimizer.zero_grad()
        total = torch.zeros(())
        for i in range(self.passes):
            x, y = self.x[step * self.passes + i], self.y[step * self.passes + i]
            with torch.autocast("cpu", torch.bfloat16, enabled=self.option == "bf16_autocast"):
                loss = torch.nn.functional.mse_loss(self.model(x), y) / self.passes
            self.scaler.scale(loss).backward()
            total += loss.detach()
        if self.option == "clipping":
            if self.distributed:
                self.optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.3)
        return total

    def step(self, step: int) -> Any:
        """Take a step; return the loss."""
        import torch

        if isinstance(self.optimizer, torch.optim.LBFGS):
            return self.optimizer.step(lambda: self.gradients(step))
        loss = self.gradients(step)
        if self.option == "clipping" and self.distributed:
            with self.optimizer.skip_synchronize():
                self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def run(self) -> dict[str, Any]:
        """Take all steps; return what is left of them."""
        losses = [float(self.step(step)) for step in range(STEPS)]
        weights = flat(self.model.parameters()).numpy()
        return {"weights": weights, "loss": losses[-5:], "scale": self.scaler.get_scale()}


CASES = [(a, b) for a in OPTIMIZERS for b in OPTIONS if (a, b) not in IMPOSSIBLE]


@functools.cache
def trained() -> dict[tuple[str, str], tuple[list[dict[str, Any]], dict[str, Any]]]:
    """For each case what each rank has, and what one process has."""
    import syrtos.torch as hvd

    ours = {case: Case(*case, distributed=True).run() for case in CASES}
    # The ranks share the work of the references.
    alone = {case: Case(*case, distributed=False).run() for case in CASES[hvd.rank() :: RANKS]}
    of_ranks = hvd.allgather_object((ours, alone))
    references = {case: result for _, part in of_ranks for case, result in part.items()}
    return {case: ([part[case] for part, _ in of_ranks], references[case]) for case in CASES}


def _check_case(optimizer: str, option: str) -> None:
    import numpy as np

    ranks, alone = trained()[optimizer, option]
    assert ranks[0]["weights"].tobytes() == ranks[1]["weights"].tobytes()
    assert ranks[0]["scale"] == ranks[1]["scale"] == alone["scale"]
    assert np.isfinite(alone["weights"]).all()
    if (optimizer, option) in ASTRAY:
        assert np.isfinite(ranks[0]["weights"]).all()
    elif option == "bf16_autocast":
        ours = np.mean([rank["loss"] for rank in ranks])
        assert abs(ours - np.mean(alone["loss"])) <= 0.02 * np.mean(alone["loss"])
    else:
        assert np.abs(ranks[0]["weights"] - alone["weights"]).max() <= 1e-5
    assert np.abs(alone["weights"] - flat(network().parameters()).numpy()).max() > 0.01


for _optimizer, _option in CASES:
    CHECKS[f"{_optimizer}_with_{_option}_equals_one_process"] = functools.partial(
        _check_case, _optimizer, _option
    )
