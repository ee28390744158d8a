"""What a round of reductions remembers of each parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syrtos._handle import Handle

__all__ = ["Request", "Slot"]


class Slot:
    """One parameter.

    Parameters
    ----------
    name : str
        Its name.
    param : torch.Tensor
        The parameter.

    Attributes
    ----------
    index : int
        Its place among the parameters.
    request : Request
        What it travels in.
    passes : int
        Backward passes in this round.
    offered : bool
        Whether its gradient is under way, or waits for others of its request.
    dense, home : torch.Tensor or None
        What is reduced, and the gradient whose memory it is.
    sparse : callable or None
        Waits for the reduction of a sparse gradient.
    """

    __slots__ = (
        "dense",
        "home",
        "index",
        "name",
        "offered",
        "param",
        "passes",
        "request",
        "sparse",
    )

    def __init__(self, name: str, param: Any) -> None:
        self.index = -1
        self.name = name
        self.param = param
        self.request: Request
        self.clear()

    def clear(self) -> None:
        """Forget the round."""
        self.passes = 0
        self.offered = False
        self.dense: Any = None
        self.home: Any = None
        self.sparse: Callable[[], Any] | None = None


class Request:
    """Parameters whose gradients travel together.

    Parameters
    ----------
    slots : list of Slot
        The parameters.

    Attributes
    ----------
    waiting : int
        How many gradients are still to come.
    sent : list of Slot
        Those that were sent.
    handle : Handle or None
        Of the request, once sent.
    """

    __slots__ = ("handle", "sent", "slots", "waiting")

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = slots
        self.clear()

    def clear(self) -> None:
        """Forget the round."""
        self.waiting = len(self.slots)
        self.sent: list[Slot] = []
        self.handle: Handle | None = None

    @property
    def name(self) -> str:
        """Its name: that of its first parameter."""
        return self.slots[0].name

    def results(self) -> list[tuple[Slot, Any]]:
        """Wait, and return each parameter that was sent with its result."""
        if self.handle is None:
            return []
        values = self.handle.wait()
        grouped = len(self.slots) > 1
        return list(zip(self.sent, values if grouped else [values], strict=True))
