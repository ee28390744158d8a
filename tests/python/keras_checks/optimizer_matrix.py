"""Training on two ranks with half batches equals training in one process with whole batches."""

from __future__ import annotations

import itertools
import random
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_checks import RANKS, flat

STEPS, BATCH, FEATURES = 50, 32, 8
#: Steps in which the labels of rank 1 are infinite, where an option asks for it.
OVERFLOWS = (7, 23)

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"learning_rate": 0.02, "momentum": 0.9}),
    "adam": ("Adam", {"learning_rate": 0.01}),
    "adamw": ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.05}),
}


@dataclass(frozen=True)
class Option:
    """How an optimizer is set up, and how many gradients are reduced in `STEPS` steps."""

    arguments: dict[str, Any]
    reductions: int = STEPS
    scaled: bool = False
    policy: str | None = None

    def expected(self, release: str) -> int:
        """How many reductions a release of Keras makes: before 3.6 it clips before it adds up."""
        if tuple(int(part) for part in release.split(".")[:2]) >= (3, 6):
            return self.reductions
        return _FINITE if self.scaled else STEPS

    @property
    def flags(self) -> int:
        """How often the ranks agree on whether the gradients are finite: with each batch."""
        return STEPS if self.scaled else 0


# An update for every 4 batches, and of LossScaleOptimizer none for those that overflow.
_AFTER_4 = STEPS // 4
_FINITE = STEPS - len(OVERFLOWS)
_CLIPPED = {"gradient_accumulation_steps": 4, "global_clipnorm": 0.3}
OPTIONS: dict[str, Option] = {
    "plain": Option({}),
    "clipnorm": Option({"clipnorm": 0.3}),
    "global_clipnorm": Option({"global_clipnorm": 0.3}),
    "clipvalue": Option({"clipvalue": 0.05}),
    "accumulation": Option({"gradient_accumulation_steps": 4}, _AFTER_4),
    "clipped_accumulation": Option(_CLIPPED, _AFTER_4),
    "ema": Option({"use_ema": True, "ema_momentum": 0.9}),
    "overwriting_ema": Option({"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 5}),
    "loss_scale_factor": Option({"loss_scale_factor": 128.0}),
    "overflow": Option({}, _FINITE, scaled=True),
    "overflow_in_accumulation": Option(_CLIPPED, _FINITE // 4, scaled=True),
    "float16": Option({}, _FINITE, scaled=True, policy="mixed_float16"),
}
CASES = [f"{one}-{option}" for one, option in itertools.product(OPTIMIZERS, OPTIONS)]


def cases_of(backend: str, seed: int | None) -> list[str]:
    """All cases of a backend, or a tenth drawn by a seed; TensorFlow's with and without XLA."""
    ways = ["", "-xla"] if backend == "tensorflow" else [""]
    count = len(CASES) if seed is None else -(-len(CASES) // 10)
    return [
        case + way
        for way in ways
        for case in random.Random(f"{backend}{way} {seed}").sample(CASES, count)
    ]


@dataclass
class Outcome:
    """What one training has led to."""

    weights: np.ndarray[Any, Any]
    state: np.ndarray[Any, Any]
    requests: int
    scale: tuple[float, int]


def make_model(policy: str | None) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(16, activation="tanh", dtype=policy)
    return keras.Sequential(
        [keras.Input((FEATURES,)), hidden, keras.layers.Dense(1, dtype="float32")]
    )


def make_data(option: Option) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Whole batches; the second half of each is rank 1's."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS * BATCH, FEATURES)).astype("float32")
    y = (x @ rng.normal(size=(FEATURES, 1)) + rng.normal(size=(len(x), 1)) / 10).astype("float32")
    if option.scaled:
        for step in OVERFLOWS:
            y[step * BATCH + BATCH - 1] = np.inf
    return x, y


def requests() -> int:
    """How many collectives this rank has asked for."""
    from syrtos import _session

    counters = _session.current().engine.counters()
    return counters["cached_posts"] + counters["full_posts"]


def train(case: str, distributed: bool) -> Outcome:
    import keras

    import syrtos.keras as hvd

    kind, name, *xla = case.split("-")
    option = OPTIONS[name]
    x, y = make_data(option)
    batch = BATCH
    class_name, arguments = OPTIMIZERS[kind]
    optimizer = getattr(keras.optimizers, class_name)(**arguments, **option.arguments)
    if distributed:
        batch //= RANKS
        x, y = (
            a.reshape(STEPS, RANKS, batch, -1)[:, hvd.rank()].reshape(STEPS * batch, -1)
            for a in (x, y)
        )
        hvd.DistributedOptimizer(optimizer)
    inner = optimizer
    if option.scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(
            optimizer, initial_scale=64.0, dynamic_growth_steps=15
        )
    model = make_model(option.policy)
    model.compile(optimizer=optimizer, loss="mse", jit_compile=bool(xla) or "auto")
    before = requests()
    model.fit(x, y, batch_size=batch, shuffle=False, epochs=1, verbose=0)
    scale = (0.0, 0)
    if option.scaled:
        steps = getattr(inner, "_iterations", inner.iterations)  # older releases have one only
        scale = (float(flat([optimizer.dynamic_scale])[0]), int(flat([steps])[0]))
    # What has not led to an update yet is each rank's own.
    state = [v for v in optimizer.variables if "gradient_accumulator" not in v.path]
    return Outcome(flat(model.weights), flat(state), requests() - before, scale)


def verify(case: str, ranks: list[Outcome], reference: Outcome) -> None:
    """Compare the ranks with each other and with one process."""
    import keras

    option = OPTIONS[case.split("-")[1]]
    for rank in ranks:
        assert rank.weights.tobytes() == ranks[0].weights.tobytes()
        assert rank.state.tobytes() == ranks[0].state.tobytes()
        assert rank.requests == option.expected(keras.__version__) + option.flags
    assert reference.requests == 0
    assert ranks[0].scale == reference.scale
    if option.scaled:
        assert reference.scale[1] == _FINITE
    error = np.abs(ranks[0].weights - reference.weights).max()
    assert error <= (3e-2 if option.policy else 1e-5), error
    moved = np.abs(reference.weights - flat(make_model(option.policy).weights)).max()
    assert moved > 0.01  # it has learned


def run_matrix(cases: list[str]) -> dict[str, str]:
    """Run on every rank: the tracebacks of the cases that failed, by name."""
    import syrtos.keras as hvd

    failures: dict[str, str] = {}

    def attempt(case: str, distributed: bool) -> Outcome | None:
        try:
            return train(case, distributed)
        except Exception:
            failures[case] = traceback.format_exc()
            return None

    mine = {case: attempt(case, distributed=True) for case in cases}
    hvd.barrier()
    # The ranks share the work of the references.
    alone = {case: attempt(case, distributed=False) for case in cases[hvd.rank() :: RANKS]}
    of_ranks = hvd.allgather_object((mine, alone, failures))
    references = {case: outcome for _, part, _ in of_ranks for case, outcome in part.items()}
    for case in cases:
        if any(case in failed for _, _, failed in of_ranks):
            continue
        try:
            verify(case, [part[case] for part, _, _ in of_ranks], references[case])
        except Exception:
            failures[case] = traceback.format_exc()
    return failures
