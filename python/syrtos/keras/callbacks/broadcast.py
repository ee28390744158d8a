"""The callback that makes ranks begin alike, and keeps them together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from syrtos import _session
from syrtos.keras import epochs, hooks
from syrtos.keras._backend import current
from syrtos.keras.callbacks._together import TogetherCallback
from syrtos.keras.planted import hook_of

__all__ = ["BroadcastGlobalVariablesCallback"]

_log = logging.getLogger("syrtos")


def _has_weights(model: Any) -> bool:
    """Whether the model's variables exist: not yet where its input shape comes with the data."""
    return bool(model.built) and all(layer.built for layer in model.layers)


class BroadcastGlobalVariablesCallback(TogetherCallback):
    """Begins training from the root's weights, optimizer state and epoch on all ranks.

    It also keeps the ranks together: one that runs out of batches waits for the others, whose
    averages then divide by the number of ranks at work; when an epoch ends, all have the same
    weights. If one rank's callback stops training, it stops on all.

    Give it to all ranks, after a callback that restores a checkpoint on the root.

    Parameters
    ----------
    root_rank : int
        The rank whose values count.
    device : str
        No effect: kept for Horovod's signature.
    local_variables : list of variable, optional
        Weights that stay each rank's own.
    average_moving_statistics : bool
        Average what the layers ``BatchNormalization`` have gathered after the batches of each
        epoch, so that all ranks validate and save the same model.

    Notes
    -----
    A model that gets its input shape from the data may have no weights before the first batch; then
    the broadcast follows after that batch. States of random generators are left alone, so that
    dropout masks differ between ranks. Gradients that a rank has accumulated and not yet applied
    when its batches end are dropped if other ranks have more batches.
    """

    def __init__(
        self,
        root_rank: int = 0,
        device: str = "",
        local_variables: Sequence[Any] | None = None,
        *,
        average_moving_statistics: bool = True,
    ) -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        self.broadcast_done = False
        self.average_moving_statistics = average_moving_statistics
        self._local = {current.key_of(variable): variable for variable in local_variables or ()}
        self._batches = 0

    def register_local_var(self, variable: Any) -> None:
        """Leave this variable as it is on each rank.

        Parameters
        ----------
        variable : variable
            A weight of the model.
        """
        self._local[current.key_of(variable)] = variable

    def set_model(self, model: Any) -> None:
        """Take the model; see Keras."""
        super().set_model(model)
        hooks.switch_off_xla(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Agree on the first epoch and broadcast, if there is anything to broadcast yet."""
        super().on_train_begin(logs)
        model = self.model
        hook = hook_of(model.optimizer)
        if hook is not None and not hook.seen:
            # A training function that was traced before the optimizer was wrapped would not reduce.
            hook.seen = True
            model.make_train_function(force=True)
        mine = (model._initial_epoch, _has_weights(model), (self.params or {}).get("steps"))
        of_ranks = current.allgather_object(mine)
        model._initial_epoch = of_ranks[self.root_rank][0]
        self._tell_steps([steps for _, _, steps in of_ranks])
        self._batches = 0
        self.broadcast_done = False
        self.hooks.local = self._local
        self.hooks.moving_statistics = self.average_moving_statistics
        self.hooks.before_the_end = self._broadcast_late
        if all(ready for _, ready, _ in of_ranks):
            self._broadcast()

    # Not `on_train_batch_end`: with that, Keras would not let its training run ahead of callbacks.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Broadcast after the first batch what did not exist before."""
        if self._batches > 0:
            self._broadcast_late()
        self._batches += 1

    def on_train_end(self, logs: Any = None) -> None:
        """Let go of the model."""
        self.hooks.before_the_end = None
        super().on_train_end(logs)

    def _broadcast_late(self) -> None:
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        model = self.model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        variables = epochs.shared_state(model, self.hooks.is_local_of(model))
        current.broadcast_variables(variables, self.root_rank)
        self.broadcast_done = True

    def _tell_steps(self, steps: list[int | None]) -> None:
        if len(set(steps)) > 1 and _session.topology().rank == 0:
            _log.info(
                "The ranks have different numbers of steps in an epoch: %s. Those with fewer wait "
                "for the others at its end.",
                steps,
            )
