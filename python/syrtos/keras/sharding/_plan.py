"""Which items are whose."""

from __future__ import annotations

from dataclasses import dataclass

from syrtos.errors import InvalidRequestError

__all__ = ["LENGTHS", "Plan"]

LENGTHS = ("uneven", "pad", "drop")


@dataclass(frozen=True)
class Plan:
    """How items are divided: item i goes to rank ``i % size``.

    Parameters
    ----------
    rank, size : int
        Whose share it is, and of how many.
    lengths : str
        "uneven", "pad" or "drop", see `syrtos.keras.shard`.
    """

    rank: int
    size: int
    lengths: str

    def __post_init__(self) -> None:
        if self.lengths not in LENGTHS:
            raise InvalidRequestError(
                f"shard: lengths={self.lengths!r} is none of {', '.join(map(repr, LENGTHS))}."
            )
        if not 0 <= self.rank < self.size:
            raise InvalidRequestError(
                f"shard: rank={self.rank!r} is none of the ranks 0 to size - 1, with "
                f"size={self.size!r}."
            )

    def length(self, items: int, what: str) -> int:
        """Return how many items this rank gets of so many `what`.

        Raises
        ------
        InvalidRequestError
            Some rank would get none.
        """
        if items < 1 or (items < self.size and self.lengths != "pad"):
            raise InvalidRequestError(
                f"shard: {items} {what} cannot be divided among {self.size} ranks so that each has "
                "one. Give more, or fewer ranks; lengths='pad' repeats some."
            )
        if self.lengths == "uneven":
            return (items - self.rank + self.size - 1) // self.size
        if self.lengths == "pad":
            return (items + self.size - 1) // self.size
        return items // self.size

    def items(self, items: int, what: str) -> list[int]:
        """Return the numbers of this rank's items, in order; padding begins again at the first."""
        return [(self.rank + i * self.size) % items for i in range(self.length(items, what))]
