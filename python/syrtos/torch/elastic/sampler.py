"""Shares a data set's samples out among the ranks, and knows which were used."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch.utils.data

from syrtos import _basics
from syrtos.errors import InvalidRequestError

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler):  # type: ignore[misc]
    """Gives each rank its part of the samples that are left in this epoch.

    Put it into a `TorchState`, call `record_batch` after each batch and `set_epoch` at the end of
    each epoch. After a failure the samples that were not recorded are shared out anew.

    Parameters
    ----------
    dataset : sized
        As many samples as it has, on all ranks alike.
    shuffle : bool
        Whether the order is another one in each epoch.
    seed : int
        Of the order; equal on all ranks.

    Attributes
    ----------
    epoch : int
        The epoch, as `set_epoch` gave it.
    processed_num : int
        Samples that all ranks together have recorded in this epoch.
    remaining_indices : list of int
        The samples that are left for all ranks, in order, as of the last `reset`.
    num_samples : int
        How many of them each rank gets; some are given twice if they cannot be shared out evenly.
    total_size : int
        ``num_samples`` times the number of ranks.
    num_replicas, rank : int
        Number of ranks and this one's number, as of the last `reset`.

    Raises
    ------
    NotInitializedError
        Before ``init``.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, with no sample used; call it at the end of the one before.

        Parameters
        ----------
        epoch : int
            Its number, which with the seed decides the order.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that every rank has used a batch of this size.

        Parameters
        ----------
        batch_idx : int
            No effect: kept for Horovod's signature.
        batch_size : int
            Number of samples on each rank.
        """
        del batch_idx
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Return ``epoch`` and ``processed_num``."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to what `state_dict` returned, and share the samples out anew.

        Raises
        ------
        InvalidRequestError
            An entry is missing.
        """
        for name in ("epoch", "processed_num"):
            if name not in state_dict:
                raise InvalidRequestError(
                    f"ElasticSampler.load_state_dict: {name!r} is missing; the dictionary has "
                    f"{sorted(state_dict)}."
                )
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Share the samples that were not recorded out among the ranks there are now."""
        self.num_replicas = _basics.size()
        self.rank = _basics.rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's samples: every n-th of those that are left, for n ranks."""
        # Few samples may be left for many ranks, so the list may have to be repeated.
        padded = itertools.islice(itertools.cycle(self.remaining_indices), self.total_size)
        return itertools.islice(padded, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        """Return the number of samples that this rank gets."""
        return self.num_samples
