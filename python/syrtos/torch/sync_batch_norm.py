"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from syrtos import _session
from syrtos._kinds import ReduceOp
from syrtos.torch.reductions import allreduce, allreduce_

__all__ = ["SyncBatchNorm"]


def _dims(x: Any) -> list[int]:
    """Return all dimensions but the channels'."""
    return [0, *range(2, x.dim())]


def _wide(x: Any) -> Any:
    """Return the values where sums of many of them are exact enough."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _per_channel(values: Any, like: Any) -> Any:
    return values.to(like.dtype).reshape([1, -1, *[1] * (like.dim() - 2)])


def _sums(x: Any) -> Any:
    """Return this rank's sums and sums of squares of each channel, and the count, in float64.

    Parameters
    ----------
    x : tensor, shape (n, channels, ...)
        This rank's batch; n may be 0.

    Notes
    -----
    In float64 the difference of the two that gives a variance loses nothing that matters.
    """
    channels = x.shape[1]
    count = x.numel() // channels if channels else 0
    if not count:
        return torch.zeros(2 * channels + 1, dtype=torch.float64, device=x.device)
    variance, mean = torch.var_mean(_wide(x), _dims(x), correction=0)
    mean = mean.double()
    squares = (variance.double() + mean * mean) * count
    return torch.cat([mean * count, squares, torch.full_like(mean[:1], count)])


def _statistics(sums: Any) -> tuple[Any, Any, Any]:
    """Return mean and biased variance of each channel, and the count, of the ranks' sums."""
    half = sums.shape[0] // 2
    total = sums[-1]
    mean = sums[:half] / total
    return mean, (sums[half:-1] / total - mean * mean).clamp(min=0), total


class _Normalize(torch.autograd.Function):  # type: ignore[misc]
    """Normalizes by statistics that depend on the inputs of all ranks."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, statistics: tuple[Any, Any, Any], eps: float
    ) -> Any:
        mean, variance, ctx.total = statistics
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(variance + eps))
        kind = _wide(x).dtype if weight is None else weight.dtype
        return functional.batch_norm(
            x, mean.to(kind), variance.to(kind), weight, bias, False, 0.0, eps
        )

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        g, centred = _wide(grad), _wide(x) - _per_channel(mean, _wide(x))
        sums = torch.cat([g.sum(_dims(x)), (g * centred).sum(_dims(x))]).double()
        channels = x.shape[1]
        of_weight = of_bias = of_x = None
        if ctx.needs_input_grad[1]:
            of_weight = (sums[channels:] * inverse).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            of_bias = sums[:channels].to(weight.dtype)
        if ctx.needs_input_grad[0]:
            # The statistics depend on every input, so every gradient depends on all of them.
            means = allreduce(sums, op=ReduceOp.Sum) / ctx.total
            scale = inverse if weight is None else inverse * weight
            slope = means[channels:] * inverse * inverse
            of_x = g - _per_channel(means[:channels], g) - centred * _per_channel(slope, g)
            of_x = (of_x * _per_channel(scale, g)).to(x.dtype)
        return of_x, of_weight, of_bias, None, None


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):  # type: ignore[misc]
    """Batch normalization whose statistics are those of the batches of all ranks together.

    Parameters
    ----------
    num_features : int
        Number of channels, the second dimension of the input.
    eps : float
        Added to the variance.
    momentum : float or None
        Share of the new statistics in the running ones; None for their plain mean.
    affine : bool
        Whether there are weights and biases to learn.
    track_running_stats : bool
        Whether there are running statistics for ``eval()``.

    Notes
    -----
    Input and output have shape (n, channels, ...); n may differ between ranks, and be 0. A forward
    pass in training mode does one allreduce, and a backward pass another, so all ranks must do
    them alike. Weights get the gradients of this rank's outputs, to be averaged by
    `DistributedOptimizer` like others. In evaluation mode it is a plain batch normalization. Inside
    ``torch.compile`` it is part of the graph, and too few values give NaN in place of an error.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> hvd.SyncBatchNorm(3)(torch.randn(4, 3, 2, 2)).shape
    torch.Size([4, 3, 2, 2])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"SyncBatchNorm: expected an input of shape (n, {self.num_features}, ...), not "
                f"{tuple(input.shape)}."
            )
        if input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm({self.num_features}): the input of shape {tuple(input.shape)} has "
                f"{input.shape[1]} channels."
            )

    def forward(self, input: Any) -> Any:
        """Normalize a batch.

        Parameters
        ----------
        input : torch.Tensor, shape (n, channels, ...)
            This rank's batch.

        Returns
        -------
        torch.Tensor
            Of the same shape and dtype.

        Raises
        ------
        ValueError
            A wrong shape, or fewer than 2 values per channel on all ranks together.
        """
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or _session.topology().size == 1:
            return super().forward(input)
        if torch.compiler.is_compiling():
            return self._forward_in_graph(input)
        with torch.no_grad():
            statistics = _statistics(allreduce_(_sums(input), op=ReduceOp.Sum))
            total = int(statistics[2])
            if total < 2:
                raise ValueError(
                    "SyncBatchNorm: expected more than 1 value per channel when training, but all "
                    f"ranks together have {total}; the input has shape {tuple(input.shape)}."
                )
            self._track(*statistics)
        return _Normalize.apply(input, self.weight, self.bias, statistics, self.eps)

    def _forward_in_graph(self, input: Any) -> Any:
        """Do the same by operations that compilers can see through."""
        mean, variance, total = _statistics(allreduce(_sums(input), op=ReduceOp.Sum))
        with torch.no_grad():
            self._track(mean, variance, total)
        wide = _wide(input)
        inverse = torch.rsqrt(variance + self.eps)
        output = (wide - _per_channel(mean, wide)) * _per_channel(inverse, wide)
        if self.affine:
            output = output * _per_channel(self.weight, wide) + _per_channel(self.bias, wide)
        return output.to(input.dtype)

    def _track(self, mean: Any, variance: Any, total: Any) -> None:
        """Let the running statistics follow those of a batch."""
        if not self.training or self.running_mean is None:
            return
        self.num_batches_tracked.add_(1)
        for running, batch in (
            (self.running_mean, mean),
            (self.running_var, variance * (total / (total - 1))),
        ):
            share = self.momentum
            if share is None:
                share = self.num_batches_tracked.to(running.dtype).reciprocal()
            running.lerp_(batch.to(running.dtype), share)
