"""Shares of a ``torch.utils.data.DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from syrtos.errors import InvalidRequestError
from syrtos.keras.sharding._plan import Plan

__all__ = ["ShardSampler", "shard_loader"]


class ShardSampler(Sampler[int]):  # type: ignore[misc]
    """The numbers of this rank's items, as torch's ``DistributedSampler`` gives them.

    Other than there, ranks may have unequal numbers of items, and each iteration is an epoch of its
    own, with an order of its own: nobody needs to call ``set_epoch``.

    Parameters
    ----------
    items : int
        Of the whole data set.
    plan : Plan
        Whose share it is.
    shuffle : bool
        Draw the order of all items anew in each epoch.
    seed : int
        The same on all ranks.
    """

    def __init__(self, items: int, plan: Plan, shuffle: bool, seed: int) -> None:
        self._items = items
        self._places = plan.items(items, "items")
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch next, after a restart for instance."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Return how many items this rank has."""
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        """Return the numbers of the items of one epoch."""
        if not self._shuffle:
            return iter(self._places)
        generator = torch.Generator()
        generator.manual_seed(self._seed + self._epoch)
        self._epoch += 1
        order = torch.randperm(self._items, generator=generator).tolist()
        return iter([order[place] for place in self._places])


def shard_loader(loader: Any, plan: Plan, seed: int) -> Any:
    """Return a loader of this rank's items, which is like the given one in all else.

    Parameters
    ----------
    loader : DataLoader
        With a data set that has a length, and with the sampler that ``shuffle`` makes. It is left
        as it is.
    plan : Plan
        Whose share it is.
    seed : int
        Of the order, if the loader shuffles.

    Raises
    ------
    InvalidRequestError
        The items cannot be counted, or a sampler of the user's chooses them.
    """
    if not hasattr(loader.dataset, "__len__"):
        raise InvalidRequestError(
            f"shard: {type(loader.dataset).__name__} has no length, so its items cannot be "
            "divided. Let the data set itself yield the items of syrtos.keras.rank() alone."
        )
    plain = type(loader.batch_sampler) in (BatchSampler, type(None))
    if not plain or type(loader.sampler) not in (RandomSampler, SequentialSampler):
        chooser = loader.sampler if plain else loader.batch_sampler
        raise InvalidRequestError(
            f"shard: the loader has a {type(chooser).__name__}, which chooses items by itself. "
            "Make the loader without it, or let it choose those of syrtos.keras.rank() alone."
        )
    sampler, items = loader.sampler, len(loader.dataset)
    shuffle = type(sampler) is RandomSampler
    if shuffle and (sampler.replacement or sampler.num_samples != items):
        raise InvalidRequestError(
            "shard: the loader's RandomSampler draws with replacement, or not all items; use "
            "shuffle=True, which gives each item once."
        )
    workers: dict[str, Any] = {}
    if loader.num_workers > 0:
        workers = {
            "prefetch_factor": loader.prefetch_factor,
            "persistent_workers": loader.persistent_workers,
            "multiprocessing_context": loader.multiprocessing_context,
        }
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=ShardSampler(items, plan, shuffle, seed),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        **workers,
    )
