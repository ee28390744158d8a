"""The collectives of ``torch.distributed``, by those of Syrtos."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from syrtos._handle import Handle
from syrtos._kinds import Kind, ReduceOp
from syrtos._session import Session
from syrtos.adapter import View, part_of
from syrtos.errors import InvalidRequestError
from syrtos.torch.adapter import ADAPTER
from syrtos.torch.c10d.work import CollectiveWork, Deliveries

__all__ = ["SyrtosProcessGroup"]

Finish = Callable[[list[Any]], list[Any]]


def _flat(tensor: Any, what: str) -> View:
    """Return a tensor's memory as a vector."""
    view = ADAPTER.view(tensor.detach(), in_place=False, what=what)
    return replace(view, shape=(tensor.numel(),))


def _joined(tensors: Sequence[Any]) -> Any:
    """Return one vector of all elements."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _copy_pieces(source: Any, targets: Sequence[Any], what: str) -> None:
    """Fill tensors of any layout with the consecutive elements of a vector."""
    sizes = [target.numel() for target in targets]
    if source.numel() != sum(sizes):
        raise InvalidRequestError(
            f"{what}: {source.numel()} elements have come for outputs of {sum(sizes)}. Give output "
            "tensors of the sizes that the other ranks send."
        )
    with torch.no_grad():
        for piece, target in zip(source.split(sizes), targets, strict=True):
            target.detach().copy_(piece.view(target.shape))


def _bitwise(op: Any) -> Callable[[Any, Any], Any] | None:
    """Return torch's function for the ops that the core does not know."""
    for known, function in (
        (dist.ReduceOp.BAND, torch.bitwise_and),
        (dist.ReduceOp.BOR, torch.bitwise_or),
        (dist.ReduceOp.BXOR, torch.bitwise_xor),
    ):
        if op == known:
            return function  # type: ignore[no-any-return]
    return None


def _reduce_op(op: Any, what: str) -> ReduceOp:
    for known, ours in (
        (dist.ReduceOp.SUM, ReduceOp.Sum),
        (dist.ReduceOp.AVG, ReduceOp.Average),
        (dist.ReduceOp.MIN, ReduceOp.Min),
        (dist.ReduceOp.MAX, ReduceOp.Max),
        (dist.ReduceOp.PRODUCT, ReduceOp.Product),
    ):
        if op == known:
            return ours
    raise NotImplementedError(
        f"{what}: the backend syrtos has no {op}; use SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR or "
        "BXOR."
    )


class SyrtosProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A group of ranks with an engine of its own; made by ``init_process_group``.

    Parameters
    ----------
    session : Session
        The engine.
    rank, size : int
        This process's place in the group.
    name : str
        Torch's name of the group.
    """

    def __init__(self, session: Session, rank: int, size: int, name: str) -> None:
        super().__init__(rank, size)
        self._session = session
        self._rank = rank
        self._size = size
        self._name = name
        self._deliveries = Deliveries(name)

    @property
    def engine(self) -> Any:
        """The core's engine, for diagnostics."""
        return self._session.engine

    def rank(self) -> int:
        """Return this process's number in the group."""
        return self._rank

    def size(self) -> int:
        """Return the number of members."""
        return self._size

    @property
    def group_name(self) -> str:
        """Torch's name of the group."""
        return self._name

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        """Return "syrtos"."""
        return "syrtos"

    def name(self) -> str:
        """Return "syrtos"."""
        return "syrtos"

    def __repr__(self) -> str:
        return f"SyrtosProcessGroup({self._name!r}, {self._size} ranks)"

    def shutdown(self) -> None:
        """End the engine; what is pending fails."""
        self._session.engine.close()
        self._deliveries.close()

    def abort(self) -> None:
        """End the engine; what is pending fails."""
        self.shutdown()

    def _start(
        self,
        kind: Kind,
        parts: Sequence[Any],
        finish: Callable[[Any], list[Any]],
        memory: object,
        **options: Any,
    ) -> CollectiveWork:
        completion = self._session.submit(kind, parts, **options)
        handle = Handle(self._session, completion, memory, finish)
        return CollectiveWork(self._session, handle, completion, self._deliveries)

    def _in_place(self, kind: Kind, tensors: Sequence[Any], what: str, **options: Any) -> Any:
        """Start an operation that overwrites its tensors."""
        views = [ADAPTER.view(t.detach(), in_place=True, what=what) for t in tensors]
        parts = [part_of(view, view.pointer) for view in views]

        def finish(_: Any) -> list[Any]:
            for view in views:
                ADAPTER.write_back(view)
            return list(tensors)

        return self._start(kind, parts, finish, views, **options)

    def _collect(
        self,
        kind: Kind,
        views: Sequence[View],
        finish: Finish,
        *,
        splits: Sequence[int] = (),
        **options: Any,
    ) -> Any:
        """Start an operation whose results the engine allocates; `finish` hands them out."""
        parts = [part_of(view, 0, splits=tuple(splits)) for view in views]

        def take(completion: Any) -> list[Any]:
            return finish(
                [
                    ADAPTER.from_buffer(completion.buffer(i), completion.shape(i), view)
                    for i, view in enumerate(views)
                ]
            )

        return self._start(kind, parts, take, views, **options)

    # The methods below have the names and arguments by which torch calls them.

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Overwrite a tensor with the root's."""
        root = opts.rootRank if opts is not None else 0
        return self._in_place(Kind.BROADCAST, tensors, "broadcast", root=root)

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Overwrite tensors with what all ranks' make together."""
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        function = _bitwise(op)
        if function is None:
            chosen = _reduce_op(op, "all_reduce")
            return self._in_place(Kind.ALLREDUCE, tensors, "all_reduce", op=chosen)
        return self._allreduce_bits(tensors, tensors, function)

    def _allreduce_bits(
        self, inputs: Sequence[Any], outputs: Sequence[Any], function: Callable[[Any, Any], Any]
    ) -> Any:
        """Gather all ranks' elements and combine them here."""

        def finish(gathered: list[Any]) -> list[Any]:
            for everyone, output in zip(gathered, outputs, strict=True):
                pieces = [torch.empty(output.shape, dtype=output.dtype) for _ in range(self._size)]
                _copy_pieces(everyone, pieces, "all_reduce")
                _copy_pieces(functools.reduce(function, pieces).view(-1), [output], "all_reduce")
            return list(outputs)

        views = [_flat(tensor, "all_reduce") for tensor in inputs]
        return self._collect(Kind.ALLGATHER, views, finish)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Overwrite several tensors, as one request."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """Give the root what all ranks' tensors make together; the others keep theirs."""
        is_root = opts.rootRank == self._rank
        copies = [tensor.detach().clone() for tensor in tensors]
        work = self.allreduce(copies, opts)
        if not is_root:
            return work
        return self._then(work, lambda: self._copy_all(copies, tensors))

    def _then(self, work: CollectiveWork, copy: Callable[[], list[Any]]) -> CollectiveWork:
        """Return the same work with something more to do at its end."""

        def finish(_: Any) -> list[Any]:
            work.result()
            return copy()

        handle = Handle(self._session, work.completion, work, finish)
        return CollectiveWork(self._session, handle, work.completion, self._deliveries)

    @staticmethod
    def _copy_all(sources: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
        with torch.no_grad():
            for source, target in zip(sources, targets, strict=True):
                target.detach().copy_(source)
        return list(targets)

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        """Collect all ranks' tensors; those of different ranks may differ in size."""

        def finish(gathered: list[Any]) -> list[Any]:
            for everyone, outputs in zip(gathered, output_tensors, strict=True):
                _copy_pieces(everyone, outputs, "all_gather")
            return [tensor for outputs in output_tensors for tensor in outputs]

        views = [_flat(tensor, "all_gather") for tensor in input_tensors]
        return self._collect(Kind.ALLGATHER, views, finish)

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> Any:
        """Collect several tensors of all ranks; here the outer list is of the ranks."""
        return self.allgather(list(zip(*output_lists, strict=True)), input_list, opts)

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Collect several tensors of all ranks, each into one."""
        return self.allgather([[output] for output in outputs], inputs, opts)

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        """Collect all ranks' tensors into one."""
        return self.allgather([[output]], [input], opts)

    # Names since torch 2.12.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        """Reduce a list of tensors, of which each rank keeps that of its number."""
        whole = [_joined(tensors) for tensors in input_tensors]
        ends = [[tensor.numel() for tensor in tensors] for tensors in input_tensors]
        return self._reduce_and_keep(whole, output_tensors, ends, opts)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        """Reduce a tensor, of which each rank keeps its part."""
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce several tensors, of which each rank keeps its part."""
        sizes = [[output.numel()] * self._size for output in outputs]
        whole = [tensor.detach().reshape(-1) for tensor in inputs]
        return self._reduce_and_keep(whole, outputs, sizes, opts)

    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_and_keep(
        self, whole: Sequence[Any], outputs: Sequence[Any], sizes: Sequence[Any], opts: Any
    ) -> Any:
        """Reduce vectors made of a stretch for each rank, and keep this rank's."""
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        for vector, counts in zip(whole, sizes, strict=True):
            if vector.numel() != sum(counts):
                raise InvalidRequestError(
                    f"reduce_scatter: an input of {vector.numel()} elements cannot be dealt out in "
                    f"{len(counts)} parts of {counts[0]}. Give an output of the right size."
                )
        even = all(len(set(counts)) == 1 for counts in sizes)
        if even and _bitwise(op) is None:

            def finish(shares: list[Any]) -> list[Any]:
                for share, output in zip(shares, outputs, strict=True):
                    _copy_pieces(share, [output], "reduce_scatter")
                return list(outputs)

            views = [_flat(vector, "reduce_scatter") for vector in whole]
            chosen = _reduce_op(op, "reduce_scatter")
            return self._collect(Kind.REDUCESCATTER, views, finish, op=chosen)
        copies = [vector.clone() for vector in whole]
        mine = [
            vector.split(list(counts))[self._rank].view(output.shape)
            for vector, counts, output in zip(copies, sizes, outputs, strict=True)
        ]
        return self._then(self.allreduce(copies, opts), lambda: self._copy_all(mine, outputs))

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        """Send a tensor to each rank and receive one from each."""
        return self._exchange(
            _joined(input_tensors), [t.numel() for t in input_tensors], output_tensors, "all_to_all"
        )

    def alltoall_base(
        self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any = None
    ) -> Any:
        """Send rows to each rank and receive rows from each."""
        row = input.numel() // input.shape[0] if input.numel() else 1
        counts = [count * row for count in input_splits]
        if not counts:
            share, rest = divmod(input.numel(), self._size)
            if rest:
                raise InvalidRequestError(
                    f"all_to_all_single: an input of shape {tuple(input.shape)} cannot be split "
                    f"evenly over {self._size} ranks. Give input_split_sizes."
                )
            counts = [share] * self._size
        return self._exchange(input, counts, [output], "all_to_all_single")

    all_to_all_single = alltoall_base

    def _exchange(self, whole: Any, counts: Sequence[int], outputs: Any, what: str) -> Any:
        """Send consecutive elements to each rank; fill the outputs with those that come."""

        def finish(received: list[Any]) -> list[Any]:
            if outputs:
                _copy_pieces(received[0], outputs, what)
            return list(outputs)

        return self._collect(Kind.ALLTOALL, [_flat(whole, what)], finish, splits=counts)

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        """Collect all ranks' tensors on the root."""
        (tensor,) = input_tensors
        counts = [tensor.numel() if rank == opts.rootRank else 0 for rank in range(self._size)]
        outputs = output_tensors[0] if opts.rootRank == self._rank else []
        return self._exchange(tensor, counts, outputs, "gather")

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        """Send a tensor of the root to each rank."""
        if opts.rootRank == self._rank:
            whole = _joined(input_tensors[0])
            counts = [tensor.numel() for tensor in input_tensors[0]]
        else:
            whole, counts = output_tensors[0].new_empty(0), [0] * self._size
        return self._exchange(whole, counts, output_tensors, "scatter")

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all members."""
        return self._start(Kind.BARRIER, (), lambda _: [], None)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Refuse: there is no such operation."""
        raise self._no_peer_to_peer("send")

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Refuse: there is no such operation."""
        raise self._no_peer_to_peer("recv")

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Refuse: there is no such operation."""
        raise self._no_peer_to_peer("recv")

    @staticmethod
    def _no_peer_to_peer(verb: str) -> NotImplementedError:
        return NotImplementedError(
            f"{verb}: the backend syrtos has collectives only. Make a group for it with "
            'torch.distributed.new_group(backend="gloo").'
        )
