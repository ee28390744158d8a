"""The reduction of gradients as they become ready; shared by `DistributedOptimizer` and `wrap`.

A *round* begins when backward has made the first gradient and ends with `Reducer.finish`, which all
ranks must call equally often. Hooks hand over each gradient as soon as it is complete, so that it
travels while backward goes on. Which parameters have a gradient may differ between ranks: a rank
without one sends zeros if any other rank has one, so all ranks hold the same gradients afterwards;
a parameter without a gradient on every rank keeps none, as in one process.

To know that, each rank sends a last small tensor, *found*, with an entry for each parameter:
whether it has a dense gradient, and whether it has a sparse one. It goes out together with the last
gradients and has their dtype, op and factors, so it usually shares a message with them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from syrtos import _session
from syrtos._handle import Handle
from syrtos.errors import SyrtosError
from syrtos.torch.optimizer import hooks
from syrtos.torch.optimizer.arguments import Settings
from syrtos.torch.optimizer.sender import OrderError, Sender
from syrtos.torch.optimizer.slots import Request, Slot

__all__ = ["OrderError", "Reducer"]


class Reducer:
    """Reduces the gradients of some parameters over the ranks.

    Parameters
    ----------
    named : sequence of (str, torch.Tensor)
        The parameters; equal names, in the same order, on all ranks.
    settings : Settings
        How.
    groups : sequence of lists of int
        The parameters of each request by their places; see `group_parameters`.
    passes : int
        Backward passes before a gradient is complete.
    listen : bool
        Put hooks on the parameters.
    on_open : callable, optional
        Called in the backward pass that begins a round, to arrange for its end. A round that is
        still open when a gradient comes again is then taken for that of a backward pass that
        failed, and dropped; without this argument, it is an error.

    Attributes
    ----------
    slots : list of Slot
        The parameters that can have a gradient.

    Notes
    -----
    Hooks run on the threads of autograd, `finish` on the caller's. The hooks do not keep the
    reducer alive, and vanish with it.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Any]],
        settings: Settings,
        groups: Sequence[list[int]],
        passes: int = 1,
        *,
        listen: bool = True,
        on_open: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings
        self.passes = passes
        self.slots: list[Slot] = []
        self._requests: list[Request] = []
        self._send = Sender(settings)
        self._hooks = hooks.Hooks(self) if listen else None
        self._on_open = on_open
        self._lock = threading.RLock()
        self._paused = False
        self._opened = False
        self._offered = 0
        self._found: Handle | None = None
        self._session: Callable[[], Any] = lambda: None
        self._alone = True
        self.add(named, groups)

    def add(self, named: Sequence[tuple[str, Any]], groups: Sequence[list[int]]) -> None:
        """Take in more parameters; `groups` counts from the first of them."""
        new = [Slot(name, param) for name, param in named]
        for group in groups:
            # Others, such as integer tensors, never have a gradient.
            members = [new[i] for i in group if hooks.can_have_gradient(new[i].param)]
            if members:
                self._requests.append(Request(members))
            for slot in members:
                slot.request = self._requests[-1]
        for slot in new:
            if hooks.can_have_gradient(slot.param):
                slot.index = len(self.slots)
                self.slots.append(slot)
                if self._hooks is not None:
                    self._hooks.put(slot.param, slot.index)

    def groups(self) -> list[list[int]]:
        """Return the places of the parameters of each request, counted as in `slots`."""
        return [[slot.index for slot in request.slots] for request in self._requests]

    @property
    def is_open(self) -> bool:
        """Whether gradients are under way."""
        return self._offered > 0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let gradients of backward passes inside the context only add up."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    @property
    def is_paused(self) -> bool:
        """Whether it is in a context of `pause`."""
        return self._paused

    def takes_part(self) -> bool:
        """Whether this rank has others to reduce with.

        Raises
        ------
        NotInitializedError
            There is no engine.
        """
        session = _session.current()
        if self._session() is not session:
            self.reset()  # what is left of a round of an engine that is gone
            self._session = weakref.ref(session)
            members = self.settings.process_set
            members.group()
            self._alone = not members.included() or members.size() == 1
        return not self._alone

    # Called in backward.

    def announce(self, index: int) -> None:
        """Note that backward has added to a gradient; send it if it is complete now.

        Raises
        ------
        OrderError
            It was complete before.
        """
        if not self.takes_part():
            return
        slot = self.slots[index]
        with self._lock:
            if slot.passes >= self.passes:
                self._come_again(slot)
            if self._paused:
                return
            self.open()
            if slot.passes + 1 == self.passes:
                self._offer(slot)
            slot.passes += 1

    def open(self) -> None:
        """Begin a round, also if no parameter gets a gradient on this rank."""
        if self._opened or self._paused or not self.takes_part():
            return
        with self._lock:
            self._opened = True
            if self._on_open is not None:
                self._on_open()

    def _come_again(self, slot: Slot) -> None:
        if self._on_open is not None:
            self.reset()
            return
        raise OrderError(
            f'The gradient of "{slot.name}" is being reduced already: it was computed in more than '
            f"backward_passes_per_step={self.passes} backward passes before step() or "
            "synchronize(). Increase backward_passes_per_step to add gradients up, or put backward "
            "passes that shall only add up into `with optimizer.no_sync():`."
        )

    # What is reduced: gradients; the optimizer for Adasum puts something else in their place.

    def value(self, slot: Slot) -> Any:
        """Return this rank's tensor, None if it has none."""
        return slot.param.grad

    def store(self, slot: Slot, result: Any) -> None:
        """Make a result the parameter's gradient."""
        grad = slot.param.grad
        if result is slot.dense and slot.home is not None and grad is slot.home:
            return  # reduced in place
        if grad is not None and grad.layout == result.layout == torch.strided:
            grad.detach().copy_(result)
        else:
            slot.param.grad = result

    # Sending.

    def _offer(self, slot: Slot) -> None:
        """Send a tensor, or keep it until the others of its request are there."""
        value = self.value(slot)
        if value.layout == torch.strided:
            slot.dense, slot.home = value.detach(), value
        elif self.settings.sparse_as_dense or not hooks.is_sparse_rows(value):
            slot.dense = hooks.densified(value.detach())
        else:
            slot.sparse = self._send.sparse(slot.name, value.detach())
        if slot.dense is not None:
            request = slot.request
            if request.waiting == 1:
                self._start(request, request.slots)
            request.waiting -= 1
        slot.offered = True
        self._offered += 1
        if self._offered == len(self.slots):
            self._send_found()

    def _start(self, request: Request, slots: list[Slot]) -> None:
        tensors = [slot.dense for slot in slots]
        grouped = len(request.slots) > 1
        request.handle = self._send.dense(request.name, tensors, grouped=grouped)
        request.sent = slots

    def _send_found(self) -> Handle:
        """Tell the others which tensors there are, once it is sure."""
        if self._found is None:
            dense = [float(slot.dense is not None) for slot in self.slots]
            sparse = [float(slot.sparse is not None) for slot in self.slots]
            first = self.slots[0]
            self._found = self._send.found(first.name, dense + sparse, first.param.dtype)
        return self._found

    def _send_missing(self, found: list[float]) -> None:
        """Send zeros for what only others have."""
        half = len(self.slots)
        for request in self._requests:
            if request.handle is not None:
                continue
            members = [slot for slot in request.slots if found[slot.index]]
            for slot in members:
                if slot.dense is None:
                    slot.dense = torch.zeros_like(slot.param)
            if members:
                self._start(request, members)
        for slot in self.slots:
            if found[half + slot.index] and slot.sparse is None:
                slot.sparse = self._send.sparse(slot.name, hooks.no_rows(slot.param))

    # The end of a round.

    def finish(self) -> None:
        """Reduce what no hook has sent, wait for all, and end the round.

        Raises
        ------
        SyrtosError
            The first reason why a reduction failed, after all have ended.
        """
        if not self.slots or not self.takes_part():
            self.reset()
            return
        try:
            with self._lock, torch.no_grad():
                for slot in self.slots:
                    if not slot.offered and self.value(slot) is not None:
                        self._offer(slot)
                self._send_missing(self._send_found().wait().tolist())
                for slot, result in self._wait():
                    sparse = self.settings.keep_sparse and result.layout == torch.strided
                    self.store(slot, result.to_sparse(1) if sparse else result)
        finally:
            self.reset()

    def _wait(self) -> list[tuple[Slot, Any]]:
        """Wait for everything, also if something fails; return the results."""
        failure: SyrtosError | None = None
        results: dict[int, Any] = {}
        for request in self._requests:
            try:
                results.update((slot.index, result) for slot, result in request.results())
            except SyrtosError as error:
                failure = failure or error
        for slot in self.slots:
            if slot.sparse is None:
                continue
            try:
                rows, dense = slot.sparse(), results.get(slot.index)
                # Some ranks may have had a dense gradient, others a sparse one.
                results[slot.index] = rows if dense is None else dense + rows
            except SyrtosError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return [(self.slots[index], result) for index, result in results.items()]

    def reset(self) -> None:
        """Forget the round, also an unfinished one."""
        with self._lock:
            for slot in self.slots:
                slot.clear()
            for request in self._requests:
                request.clear()
            self._send.release()
            self._opened = False
            self._offered = 0
            self._found = None

    def mean_of(self, loss: Any) -> Any:
        """Return a loss as all ranks together have it, by the op of the gradients.

        Parameters
        ----------
        loss : torch.Tensor, float or None
            This rank's; None on all ranks or on none.
        """
        if loss is None or not self.slots or not self.takes_part():
            return loss
        return self._send.loss(self.slots[0].name, loss)
