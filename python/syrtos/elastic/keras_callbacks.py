"""What the callbacks do that keep the state of an elastic training, for any release of Keras.

The front ends put each class before their own ``Callback``; here no framework is imported.
"""

from __future__ import annotations

from typing import Any

from syrtos.errors import InvalidRequestError

__all__ = ["CommitState", "UpdateBatchState", "UpdateEpochState"]


class CommitState:
    """Commits the state every few batches, and at the end of each epoch.

    Put it behind the callbacks that update the state.

    Parameters
    ----------
    state : syrtos.elastic.State
        What is committed.
    batches_per_commit : int
        A commit copies the model; with a larger number, less time is lost to copies and more
        batches are repeated after a failure. 0: only at the end of an epoch.

    Raises
    ------
    InvalidRequestError
        `batches_per_commit` is negative or no whole number.

    Notes
    -----
    All ranks commit together, so within an epoch it needs the same number of batches on all ranks.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        if not isinstance(batches_per_commit, int) or batches_per_commit < 0:
            raise InvalidRequestError(
                f"CommitStateCallback: batches_per_commit={batches_per_commit!r} must be a whole "
                "number, 0 or more."
            )
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._left = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Count anew, since after a restart all ranks must count alike."""
        self._left = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commit if it is time."""
        self._left -= 1
        if self._left == 0:
            self._left = self.batches_per_commit
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commit."""
        self._left = self.batches_per_commit
        self._commit()

    def _commit(self) -> None:
        self.state.commit()


class UpdateBatchState:
    """Keeps in ``state.batch`` how many batches of the epoch are done.

    After a restart in the middle of an epoch, `state.batch` says how many batches to leave out:
    pass ``steps_per_epoch=steps - state.batch``, or data without them, to ``fit``. The progress bar
    then counts those that are left.

    Parameters
    ----------
    state : syrtos.elastic.State
        With a ``batch``.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Go on from the batches that a restart has left out."""
        self._done = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the batch."""
        self.state.batch = self._done + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Begin anew."""
        self.state.batch = 0


class UpdateEpochState:
    """Keeps in ``state.epoch`` how many epochs are done.

    Parameters
    ----------
    state : syrtos.elastic.State
        With an ``epoch``.

    Notes
    -----
    As in Horovod, Keras' own count may begin at 0 after each restart: pass
    ``epochs=epochs - state.epoch`` to ``fit``.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before = state.epoch
        self._first: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Take note of the epochs that were done before this ``fit``."""
        self._before = self.state.epoch
        self._first = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Take note of where this ``fit`` counts from."""
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count the epoch."""
        self.state.epoch = self._before + epoch - (self._first or 0) + 1
