"""Making optimizers alike on all ranks: state, step counters and options."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

from syrtos import _session
from syrtos._objects import allgather_object, broadcast_object
from syrtos._ops import root_number
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import global_process_set
from syrtos.torch.parameters import broadcast_tensors

__all__ = ["broadcast_optimizer_state"]


def _without_tensors(value: Any) -> tuple[bytes, list[Any]]:
    """Pickle an object; its tensors come apart, and only dtype and shape stay in the bytes."""
    import cloudpickle

    tensors: list[Any] = []
    indices: dict[int, int] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> Any:
            if not isinstance(obj, torch.Tensor):
                return None
            if id(obj) not in indices:
                indices[id(obj)] = len(tensors)
                tensors.append(obj)
            return indices[id(obj)], obj.dtype, tuple(obj.shape)

    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue(), tensors


def _with_new_tensors(data: bytes) -> tuple[Any, list[Any]]:
    """Return the object of `_without_tensors` with empty tensors, and these in the same order."""
    tensors: dict[int, Any] = {}

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            index, dtype, shape = pid
            if index not in tensors:
                tensors[index] = torch.empty(shape, dtype=dtype, device="cpu")
            return tensors[index]

    value = Unpickler(io.BytesIO(data)).load()
    return value, [tensors[index] for index in range(len(tensors))]


def _sparse_parameters(optimizer: Any, model: Any) -> set[int]:
    """Return the identities of parameters whose gradients are sparse."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        return {id(p) for group in optimizer.param_groups for p in group["params"]}
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    modules = model.modules() if model is not None else ()
    return {
        id(module.weight) for module in modules if isinstance(module, embeddings) and module.sparse
    }


def _zero_gradients(optimizer: Any, model: Any) -> None:
    """Give trainable parameters without a gradient one of zeros, as Horovod does."""
    sparse = _sparse_parameters(optimizer, model)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not parameter.requires_grad or parameter.grad is not None:
                continue
            if id(parameter) in sparse:
                rows = torch.empty((0, *parameter.shape[1:]), dtype=parameter.dtype)
                none = torch.empty((1, 0), dtype=torch.int64)
                parameter.grad = torch.sparse_coo_tensor(
                    none, rows, parameter.shape, check_invariants=False
                )
            else:
                parameter.grad = torch.zeros_like(parameter)


def broadcast_optimizer_state(optimizer: Any, root_rank: int, model: Any = None) -> None:
    """Give the optimizer the root's state and options, so that all ranks step alike.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any, wrapped or not, LBFGS too; with the same parameters in the same groups on every rank.
        Ranks that have no state yet get the root's.
    root_rank : int
        Global rank of the sender.
    model : torch.nn.Module, optional
        Tells which parameters have sparse gradients.

    Raises
    ------
    InvalidRequestError
        A rank's optimizer cannot take the root's state, say since its groups differ; raised on all
        ranks and naming those.

    Notes
    -----
    No step is taken, so weights stay as they are. Options keep their Python types. If the root has
    no state yet, trainable parameters without a gradient get one of zeros, since scripts for
    Horovod count on it.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> model = torch.nn.Linear(2, 2)
    >>> hvd.broadcast_optimizer_state(torch.optim.Adam(model.parameters()), root_rank=0)
    """
    root = root_number(root_rank)
    is_root = _session.topology().rank == root
    state: Any = optimizer.state_dict() if is_root else None
    data, tensors = _without_tensors(state) if is_root else (b"", [])
    data = broadcast_object(data, root)
    if not is_root:
        state, tensors = _with_new_tensors(data)
    pairs = [(f"optimizer state {number}", tensor) for number, tensor in enumerate(tensors)]
    broadcast_tensors(pairs, root, global_process_set)
    failure = None if is_root else _load(optimizer, state)
    _raise_failures(allgather_object(failure), root)
    if not state.get("state"):
        _zero_gradients(optimizer, model)


def _load(optimizer: Any, state: Any) -> str | None:
    """Load a state; the text of what went wrong, which is nobody's business but the caller's."""
    try:
        optimizer.load_state_dict(state)
    except Exception as error:  # told to all ranks, which raise it
        return f"{type(error).__name__}: {error}"
    return None


def _raise_failures(failures: list[str | None], root: int) -> None:
    texts = [f"rank {rank}: {text}" for rank, text in enumerate(failures) if text]
    if texts:
        raise InvalidRequestError(
            f"broadcast_optimizer_state: the state of rank {root} does not fit the optimizer of "
            f"{'; '.join(texts)}. Make the optimizers with the same groups of parameters."
        )
