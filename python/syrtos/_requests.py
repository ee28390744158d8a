"""From the user's tensors to a request of the core and back; used by `syrtos._ops` alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syrtos import _session
from syrtos._handle import Handle
from syrtos._kinds import Kind
from syrtos.adapter import TensorAdapter, View, part_of
from syrtos.compression import Compression
from syrtos.process_sets import ProcessSet

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["Batch", "group_of"]


def group_of(process_set: ProcessSet) -> int:
    """Return the engine's number of a process set.

    Raises
    ------
    TypeError
        It is no `ProcessSet`.
    InvalidRequestError
        It is not registered.
    """
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set={process_set!r}: give a ProcessSet, see add_process_set.")
    return process_set.group()


class _Squeeze:
    """One tensor on its way through a compressor."""

    def __init__(self, adapter: TensorAdapter, tensor: Any, compression: Any, what: str) -> None:
        self._adapter = adapter
        self._compression = compression
        self._context: Any = None
        wire = getattr(compression, "wire_dtype", None)
        self._custom = wire is None
        if self._custom:
            tensor, self._context = compression.compress(tensor)
        self._original = adapter.view(tensor, in_place=False, what=what)
        self.sent = self._original
        if wire is not None and adapter.is_floating(self._original):
            self.sent = adapter.cast(self._original, wire)

    def open(self, result: Any) -> Any:
        """Return a result as the caller shall see it."""
        if self._custom:
            return self._compression.decompress(result, self._context)
        if self.sent is not self._original:
            return self._adapter.uncast(result, self._original)
        return result


class Batch:
    """The tensors of one call.

    Parameters
    ----------
    adapter : TensorAdapter
        Of their framework.
    tensors : Any
        One tensor, or a list or tuple of them if `grouped`.
    kind : Kind
        The collective.
    name : str or None
        The request's name.
    grouped : bool
        Several tensors; the result is then a list.
    in_place : bool
        Results go to the tensors themselves.
    compression : type, optional
        A `Compressor`.

    Raises
    ------
    NotInitializedError
        There is no engine.
    TypeError
        A tensor that cannot be sent, or no list where one is due.
    """

    def __init__(
        self,
        adapter: TensorAdapter,
        tensors: Any,
        kind: Kind,
        name: str | None,
        *,
        grouped: bool = False,
        in_place: bool = False,
        compression: Any = None,
    ) -> None:
        self._session = _session.current()
        self._adapter = adapter
        self._kind = kind
        self._name = name
        self._grouped = grouped
        self._in_place = in_place
        self._squeezed: list[_Squeeze] | None = None
        verb = kind.name.lower()
        if grouped and not isinstance(tensors, list | tuple):
            raise TypeError(
                f"grouped_{verb} takes a list or tuple of tensors, not {type(tensors).__name__}."
            )
        what = f'{verb} "{name}"' if name else verb
        items: Sequence[Any] = tensors if grouped else (tensors,)
        if compression is None or compression is Compression.none:
            self.views = [adapter.view(item, in_place=in_place, what=what) for item in items]
        else:
            self._squeezed = [_Squeeze(adapter, item, compression, what) for item in items]
            self.views = [item.sent for item in self._squeezed]

    def _hand_back(self, results: list[Any]) -> Any:
        if self._squeezed is not None:
            pairs = zip(self._squeezed, results, strict=True)
            results = [item.open(result) for item, result in pairs]
        return results if self._grouped else results[0]

    def submit(self, *, names: Sequence[str] = (), **options: Any) -> Handle:
        """Start a collective whose results have the shapes of the inputs.

        Parameters
        ----------
        names : sequence of str
            The tensors' own names, which must be equal on all ranks; or none.
        **options
            For `Session.submit`.
        """
        adapter, views = self._adapter, self.views
        outputs = views if self._in_place else [adapter.empty_like(view) for view in views]
        parts = [
            part_of(view, out.pointer, name=name)
            for view, out, name in zip(views, outputs, names or [""] * len(views), strict=True)
        ]

        def finish(_: _core.Completion) -> Any:
            if self._in_place:
                return self._hand_back([adapter.write_back(view) for view in views])
            return self._hand_back([adapter.finish(output) for output in outputs])

        completion = self._session.submit(self._kind, parts, name=self._name, **options)
        return Handle(self._session, completion, (views, outputs), finish)

    def collect(
        self, *, splits: tuple[int, ...] = (), with_splits: bool = False, **options: Any
    ) -> Handle:
        """Start a collective whose results the engine allocates, since their sizes come out of it.

        Parameters
        ----------
        splits : tuple of int
            Of an alltoall.
        with_splits : bool
            The result is (output, received splits).
        **options
            For `Session.submit`.
        """
        adapter, views = self._adapter, self.views
        parts: list[_core.PartTuple] = [part_of(view, 0, splits=splits) for view in views]

        def finish(completion: _core.Completion) -> Any:
            outputs: list[View | Any] = [
                adapter.from_buffer(completion.buffer(index), completion.shape(index), view)
                for index, view in enumerate(views)
            ]
            result = self._hand_back(outputs)
            if with_splits:
                return result, adapter.integers(completion.received_splits(0))
            return result

        completion = self._session.submit(self._kind, parts, name=self._name, **options)
        return Handle(self._session, completion, views, finish)
