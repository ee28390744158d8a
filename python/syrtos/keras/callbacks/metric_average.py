"""The callback that makes metrics those of all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import keras

from syrtos._kinds import ReduceOp
from syrtos.keras import hooks
from syrtos.keras._backend import current
from syrtos.keras.callbacks._together import TogetherCallback

__all__ = ["MetricAverageCallback"]


class MetricAverageCallback(TogetherCallback):
    """Makes the metrics of ``fit`` and ``evaluate`` those of all ranks' samples.

    The state of the metrics is summed before their result is read, so the values are exact however
    unevenly samples are spread, and every callback, the history and the return values see them.
    Batch by batch, the progress bar shows this rank's own values.

    As `BroadcastGlobalVariablesCallback` does, it lets ranks that have run out of batches wait for
    the others, and stops training on all ranks if it stops on one.

    Parameters
    ----------
    device : str
        No effect: kept for Horovod's signature.

    Notes
    -----
    Keras before 3.3.3 has no place for that: there the results are averaged with equal weights in
    ``on_epoch_end``, which reaches only the callbacks that come later in the list.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def set_model(self, model: Any) -> None:
        """Take the model; see Keras."""
        super().set_model(model)
        self.hooks.metrics = True
        if not hooks.has_metric_hook(model):
            warnings.warn(
                f"Keras {keras.__version__} lets Syrtos only average the ranks' results, not sum "
                "their metrics: put MetricAverageCallback first in the list of callbacks, or use "
                "Keras 3.3.3 or newer.",
                stacklevel=2,
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average the results where the metrics could not be summed."""
        super().on_epoch_end(epoch, logs)
        if not logs or hooks.has_metric_hook(self.model):
            return
        names = sorted(logs)
        # float32: JAX has no wider type by default.
        values = keras.ops.convert_to_tensor([float(logs[name]) for name in names], "float32")
        means = current.grouped_allreduce([values], op=ReduceOp.Average)[0]
        for name, value in zip(names, means, strict=True):
            logs[name] = float(value)
