"""The class of a distributed optimizer: the user's own, with a few methods in front."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.torch.optimizer.adasum import AdasumExchange, AdasumReducer
from syrtos.torch.optimizer.arguments import Settings, check_passes, name_new_group
from syrtos.torch.optimizer.exchange import Exchange
from syrtos.torch.optimizer.reducer import Reducer

__all__ = ["Distributed", "attach"]

#: Where an optimizer has its `Exchange`, and a pickled one what is needed to make it.
_KEY = "_syrtos"

#: By these attributes of ``step`` schedulers know their own wrapper; the second in older versions.
_MARKS_OF_SCHEDULERS = ("_wrapped_by_lr_sched", "_with_counter")


class Distributed:
    """The methods; `attach` puts them in front of those of an optimizer's class."""

    _syrtos: Exchange
    #: The class as it was before.
    _syrtos_base: type

    def synchronize(self) -> None:
        """Reduce the gradients now, and wait for them; for what must see them before `step`.

        Examples
        --------
        ::

            loss.backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._syrtos.synchronize()

    def skip_synchronize(self) -> AbstractContextManager[None]:
        """Return a context in which `step` takes the gradients as they are."""
        return self._syrtos.skip_synchronize()

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context in which backward passes only add to this rank's gradients.

        They are reduced with those of the next backward pass outside of it, or by `step`.
        """
        return self._syrtos.no_sync()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the gradients; arguments as those of torch."""
        self._syrtos.before_zero_grad()
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Say after how many backward passes a gradient is complete."""
        self._syrtos.reducer.passes = check_passes(passes)

    @property
    def backward_passes_per_step(self) -> int:
        """After how many backward passes a gradient is complete."""
        return self._syrtos.reducer.passes

    @property
    def _parameter_names(self) -> dict[Any, str]:
        # Horovod's name; its tests read it.
        return {slot.param: slot.name for slot in self._syrtos.reducer.slots}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as in torch; all ranks must. Their gradients are reduced too."""
        super().add_param_group(param_group)  # type: ignore[misc]
        reducer = self._syrtos.reducer
        groups: list[dict[str, Any]] = self.param_groups  # type: ignore[attr-defined]
        named = name_new_group(groups, {slot.name for slot in reducer.slots})
        reducer.add(named, [[i] for i in range(len(named))])

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load the state of a plain or a distributed optimizer, as in torch."""
        self._syrtos.forget()
        super().load_state_dict(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        reducer = self._syrtos.reducer
        place = {id(parameter): i for i, parameter in enumerate(_parameters(self))}
        names = [(place[id(slot.param)], slot.name) for slot in reducer.slots]
        state: dict[str, Any] = self.__getstate__()  # type: ignore[attr-defined]
        description = (reducer.settings, names, reducer.groups(), reducer.passes)
        return _blank, (self._syrtos_base,), {**state, _KEY: description}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # torch calls this from load_state_dict too, with other keys.
        if _KEY not in state:
            super().__setstate__(state)  # type: ignore[misc]
            return
        self.__class__ = self._syrtos_base
        self.__setstate__({key: value for key, value in state.items() if key != _KEY})
        settings, names, groups, passes = state[_KEY]
        parameters = _parameters(self)
        attach(self, settings, [(name, parameters[i]) for i, name in names], groups, passes)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _blank(base: type) -> Any:
    """Return an optimizer without state, for pickle and copy to fill."""
    made: Any = _class_over(base)
    return made.__new__(made)


def _before_step(optimizer: Any, closure: Any) -> Any:
    """Do what comes before the optimizer's own step; return the closure for it."""
    # What schedulers look at, and what older versions of them count.
    optimizer._opt_called = True
    optimizer._step_count = getattr(optimizer, "_step_count", 0) + 1
    exchange: Exchange = getattr(optimizer, _KEY)
    if closure is not None:
        return exchange.reducing(closure)
    exchange.before_step()
    return None


def _after_step(optimizer: Any) -> None:
    exchange: Exchange = getattr(optimizer, _KEY)
    exchange.after_step()


def _step_over(base: type) -> Any:
    """Return ``step`` for a class over `base`."""
    base_step: Any = base.step  # type: ignore[attr-defined]
    # Communication is never traced by torch.compile; the optimizer's own step may be.
    before_step, after_step = map(torch.compiler.disable, (_before_step, _after_step))

    @functools.wraps(base_step)
    def step(self: Any, closure: Any = None, *rest: Any, **options: Any) -> Any:
        closure = before_step(self, closure)
        # Not every optimizer's step takes a closure.
        arguments = (closure, *rest) if rest or closure is not None else ()
        result = base_step(self, *arguments, **options)
        after_step(self)
        return result

    # torch must run the optimizer's hooks once, around the inner step ...
    step.hooked = True  # type: ignore[attr-defined]
    # ... and its schedulers need not put their own wrapper around to see that a step was taken.
    for mark in _MARKS_OF_SCHEDULERS:
        setattr(step, mark, True)
    return step


_classes: dict[type, type] = {}


def _class_over(base: type) -> type:
    """Return the distributed class over an optimizer's class, of the same name."""
    if base in _classes:
        return _classes[base]
    members = {
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "_syrtos_base": base,
        "step": _step_over(base),
    }
    return _classes.setdefault(base, type(base.__name__, (Distributed, base), members))


def _uncover_step(optimizer: Any) -> None:
    """Remove the wrapper that a scheduler has put on the instance; the class's does its work.

    Raises
    ------
    InvalidRequestError
        Somebody else has replaced ``step``.
    """
    own = vars(optimizer).get("step")
    if own is None:
        return
    if not any(hasattr(own, mark) for mark in _MARKS_OF_SCHEDULERS):
        raise InvalidRequestError(
            f"DistributedOptimizer: step of this {type(optimizer).__name__} has been replaced on "
            "the instance, which would bypass the reduction. Wrap the optimizer first."
        )
    del optimizer.step


def attach(
    optimizer: Any,
    settings: Settings,
    named: Sequence[tuple[str, Any]],
    groups: Sequence[list[int]],
    passes: int,
) -> None:
    """Make an optimizer a distributed one.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        A plain one; its class changes.
    settings : Settings
        How gradients are reduced.
    named : sequence of (str, torch.Tensor)
        Its parameters.
    groups : sequence of lists of int
        Which of them travel together.
    passes : int
        Backward passes for each step.
    """
    _uncover_step(optimizer)
    if settings.op == ReduceOp.Adasum:
        exchange: Exchange = AdasumExchange(
            AdasumReducer(named, settings, groups, passes, listen=False)
        )
    else:
        exchange = Exchange(Reducer(named, settings, groups, passes))
    optimizer.__class__ = _class_over(type(optimizer))
    setattr(optimizer, _KEY, exchange)
