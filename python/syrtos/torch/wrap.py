"""`wrap`: a model whose gradients are averaged by the time ``backward()`` returns."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from syrtos import _ops, _session
from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError, SyrtosError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch.adapter import ADAPTER
from syrtos.torch.compression import Compression
from syrtos.torch.optimizer.arguments import Settings, group_parameters
from syrtos.torch.optimizer.reducer import Reducer
from syrtos.torch.parameters import broadcast_tensors

__all__ = ["wrap"]

#: Broadcasts the buffers of a model, never traced by torch.compile. Made with the first model: it
#: makes torch load its compiler.
_update_buffers: Any = None

#: How many models this process has wrapped.
_wrapped = 0

#: Models with gradients under way, by their numbers.
_open: dict[int, Wrapped] = {}


def _finish_all() -> None:
    """End the rounds of a backward pass, in an order that all ranks share.

    Raises
    ------
    SyrtosError
        The first reason why a reduction failed, after all have ended.
    """
    failure: SyrtosError | None = None
    for number in sorted(_open):
        try:
            _open.pop(number).reducer.finish()
        except SyrtosError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _tensors_of(outputs: Any) -> Iterator[Any]:
    """Yield the tensors in what a model has returned."""
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, dict):
        for value in outputs.values():
            yield from _tensors_of(value)
    elif isinstance(outputs, list | tuple):
        for value in outputs:
            yield from _tensors_of(value)


def _next_number(settings: Settings) -> int:
    """Return a number for a model that no other has, on any rank of the set."""
    global _wrapped
    highest = _ops.allreduce_async(
        ADAPTER, torch.tensor(_wrapped), op=ReduceOp.Max, process_set=settings.process_set
    ).wait()
    _wrapped = int(highest) + 1
    return int(highest)


class Wrapped(torch.nn.Module):  # type: ignore[misc]
    """What `wrap` returns.

    Parameters
    ----------
    module : torch.nn.Module
        The model.
    settings : Settings
        How gradients are reduced.
    groups : int or list of lists of torch.Tensor, optional
        See `group_parameters`.
    broadcast_buffers : bool
        Whether buffers follow the first rank's.
    """

    def __init__(
        self, module: Any, settings: Settings, groups: Any, broadcast_buffers: bool
    ) -> None:
        super().__init__()
        self.module = module
        self._setup = settings, groups, broadcast_buffers
        self._listen()

    def _listen(self) -> None:
        """Start to reduce: number this model, and put hooks on its parameters. Collective."""
        global _update_buffers
        if _update_buffers is None:
            _update_buffers = torch.compiler.disable(Wrapped._broadcast_buffers)
        settings, groups, _ = self._setup
        members = settings.process_set
        self._number = _next_number(settings) if members.included() else 0
        # Two models in one backward pass may have parameters of the same names.
        prefix = f"model.{self._number}." if self._number else ""
        named = [(prefix + name, p) for name, p in self.module.named_parameters()]
        chosen = group_parameters([p for _, p in named], groups, 0)
        mine = weakref.ref(self)

        def begin() -> None:
            model = mine()
            if model is not None:
                _open[model._number] = model
                torch.autograd.Variable._execution_engine.queue_callback(_finish_all)

        self.reducer = Reducer(named, settings, chosen, on_open=begin)

    def _broadcast(self, named: list[tuple[str, Any]]) -> None:
        members = self._setup[0].process_set
        if named and self.reducer.takes_part():
            broadcast_tensors(named, (members.ranks or [0])[0], members)

    def _broadcast_buffers(self) -> None:
        self._broadcast(list(self.module.named_buffers()))

    def broadcast(self) -> None:
        """Take over the parameters and buffers of the first rank; all ranks must call it."""
        self._broadcast([*self.module.named_parameters(), *self.module.named_buffers()])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Return what the model returns."""
        if not self.training or not torch.is_grad_enabled():
            return self.module(*inputs, **kwargs)
        if self._setup[2] and not self.reducer.is_paused:
            _update_buffers(self)
        outputs = self.module(*inputs, **kwargs)
        if not torch.compiler.is_compiling():
            # Other ranks wait for this one even if its loss depends on no parameter.
            for tensor in _tensors_of(outputs):
                if tensor.requires_grad:
                    tensor.register_hook(self._begin)
        return outputs

    def _begin(self, grad: Any) -> None:
        self.reducer.open()

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context in which backward passes only add to this rank's gradients.

        They are averaged with those of the next backward pass outside of it.
        """
        return self.reducer.pause()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "reducer"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._listen()


def wrap(
    model: Any,
    op: ReduceOp | int = ReduceOp.Average,
    compression: Any = Compression.none,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    broadcast_buffers: bool = True,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Make a model data-parallel, for those who know torch's ``DistributedDataParallel``.

    All ranks start with the first rank's parameters and buffers. Gradients travel while backward
    goes on, and are those of all ranks when it returns, so any optimizer, gradient scaler and
    clipping may follow. All ranks must call it, and run equally many backward passes.

    Parameters
    ----------
    model : torch.nn.Module
        The model; it stays usable by itself.
    op : ReduceOp
        Average or Sum.
    compression : type
        What travels: ``Compression.none``, ``.fp16`` or ``.bf16``.
    gradient_predivide_factor : float
        Divide by it before the sum and by the rest of the number of ranks after it; needs Average.
    groups : int or list of lists of torch.Tensor, optional
        Gradients of a group travel as one request, once all are there: so many groups, or the
        members of each. Others travel alone.
    sparse_as_dense : bool
        Make sparse gradients dense before they travel.
    broadcast_buffers : bool
        Before each forward pass of training, take over the buffers of the first rank.
    process_set : ProcessSet
        The ranks that take part; on others the model trains alone.

    Returns
    -------
    torch.nn.Module
        Called as the model, with ``.module``, ``no_sync()`` and ``broadcast()``; the keys of its
        ``state_dict()`` begin with ``module.``.

    Raises
    ------
    InvalidRequestError
        Arguments that contradict each other; also a ``ValueError``.
    MismatchError
        The models of the ranks differ; raised on all of them.
    TypeError
        `model` is no module.

    Notes
    -----
    A parameter that the loss does not depend on may be one on some ranks only: it counts as zeros
    there. One without a gradient on all ranks keeps none. A forward pass in evaluation mode, or
    under ``torch.no_grad()``, does not communicate. Copying or unpickling the result is collective.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> model = hvd.wrap(torch.nn.Linear(2, 1))
    >>> list(model.state_dict())
    ['module.weight', 'module.bias']
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"wrap takes a torch.nn.Module, not {type(model).__name__}.")
    _session.current()
    if ReduceOp.Adasum == op:
        raise InvalidRequestError("wrap(op=Adasum): use DistributedOptimizer(op=Adasum) for it.")
    settings = Settings(
        op=op,  # type: ignore[arg-type]
        compression=compression,
        gradient_predivide_factor=float(gradient_predivide_factor),
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    wrapped = Wrapped(model, settings, groups, broadcast_buffers)
    wrapped.broadcast()
    return wrapped
