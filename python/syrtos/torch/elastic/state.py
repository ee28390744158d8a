"""A state that knows models, optimizers, schedulers, gradient scalers and samplers."""

from __future__ import annotations

import copy
from typing import Any

import torch

from syrtos.elastic import ObjectState
from syrtos.errors import InvalidRequestError
from syrtos.torch.elastic.sampler import ElasticSampler
from syrtos.torch.functions import broadcast_object

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateDictHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


class StateHandler:
    """Says how one kind of object is saved, restored and synchronised.

    Parameters
    ----------
    value : object
        What it takes care of.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep a copy of the object's state."""
        raise NotImplementedError(f"{type(self).__name__} has no save().")

    def restore(self) -> None:
        """Bring the object back to the last copy."""
        raise NotImplementedError(f"{type(self).__name__} has no restore().")

    def sync(self) -> None:
        """Bring the object to the state that it has on rank 0, and keep a copy of that."""
        raise NotImplementedError(f"{type(self).__name__} has no sync().")

    def set_value(self, value: Any) -> None:
        """Take care of another object from now on.

        Parameters
        ----------
        value : object
            Of a kind that this handler is for.
        """
        self.value = value
        self.save()


class StateDictHandler(StateHandler):
    """For objects with ``state_dict`` and ``load_state_dict``, synchronised by pickling."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Keep a deep copy of the ``state_dict``."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Load the last copy."""
        # A copy of the copy: an optimizer goes on to work on the very tensors that it is given.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Load rank 0's ``state_dict``."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()


class SamplerStateHandler(StateDictHandler):
    """For `ElasticSampler`."""


class ModelStateHandler(StateDictHandler):
    """For modules."""

    def sync(self) -> None:
        """Broadcast parameters and buffers in place."""
        from syrtos.torch import broadcast_parameters

        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(StateDictHandler):
    """For optimizers, also distributed ones."""

    def sync(self) -> None:
        """Broadcast the state; ranks that have made no step yet get it too."""
        from syrtos.torch import broadcast_optimizer_state

        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


Registry = list[tuple[type, type[StateHandler]]]

_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (torch.optim.lr_scheduler.LRScheduler, StateDictHandler),
    (torch.amp.GradScaler, StateDictHandler),
]


def get_handler_registry() -> Registry:
    """Return the pairs of type and handler; the first pair whose type fits is taken."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replace the pairs of type and handler, for states that are made later.

    Parameters
    ----------
    registry : list of (type, type of StateHandler)
        The handler is called with the object.
    """
    global _registry
    _registry = registry


def _handler_type(value: Any) -> type[StateHandler] | None:
    return next((handler for kind, handler in _registry if isinstance(value, kind)), None)


class TorchState(ObjectState):
    """The state of a training program with PyTorch.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The model.
    optimizer : torch.optim.Optimizer, optional
        Its optimizer; may be a ``DistributedOptimizer``.
    **kwargs
        More objects by name, each an attribute of the state. Modules, optimizers, learning-rate
        schedulers, gradient scalers and `ElasticSampler` are changed in place by `restore` and
        `sync`; anything else is copied and sent as a Python object.

    Raises
    ------
    InvalidRequestError
        As `syrtos.elastic.ObjectState`.
    """

    _handlers: dict[str, StateHandler]

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        kwargs.update(model=model, optimizer=optimizer)
        handlers, rest = {}, {}
        for name, value in kwargs.items():
            kind = _handler_type(value)
            if kind is None:
                rest[name] = value
            else:
                handlers[name] = kind(value)
        self._handlers = {}
        super().__init__(broadcast_object, None, **rest)
        self._refuse_methods(handlers)
        for name, handler in handlers.items():
            setattr(self, name, handler.value)
        self._handlers = handlers

    def save(self) -> None:
        """Keep copies of everything."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Bring everything back to the last copy."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Bring everything to what it is on rank 0, and keep a copy of that."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None and value is not handler.value:
            if _handler_type(value) is not _handler_type(handler.value):
                raise InvalidRequestError(
                    f"TorchState.{name} = an object of type {type(value).__name__}: it was made "
                    f"with one of type {type(handler.value).__name__}, and goes on to need one."
                )
            handler.set_value(value)
        super().__setattr__(name, value)
