"""`DistributedOptimizer` in models: fit, loops of one's own, precision, copies, files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_checks import RANKS, assert_same_on_all_ranks, flat, optimizer_check, small_model

ROWS = 16
RATE = 0.1


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Data of all ranks; this rank's are every second row."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS * RANKS, 8)).astype("float32")
    return x, x[:, :1] + x[:, 1:2]


def mine() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    import syrtos.keras as hvd

    x, y = data()
    return x[hvd.rank() :: RANKS], y[hvd.rank() :: RANKS]


def fit(model: Any, x: Any, y: Any, steps: int = 3, **options: Any) -> None:
    """Steps over all rows at once."""
    model.fit(x, y, batch_size=len(x), epochs=steps, shuffle=False, verbose=0, **options)


def by_one_process(steps: int = 3, model: Any = None) -> np.ndarray[Any, Any]:
    """The weights after steps of plain SGD over the data of all ranks."""
    import keras

    model = small_model() if model is None else model
    model.compile(keras.optimizers.SGD(RATE), "mse")
    fit(model, *data(), steps)
    return flat(model.weights)


@optimizer_check
def wrapping_after_a_first_fit_takes_effect() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model()
    optimizer = keras.optimizers.SGD(RATE)
    model.compile(optimizer, "mse")
    fit(model, *mine(), 1)
    of_ranks = hvd.allgather_object(flat(model.weights).tobytes())
    assert of_ranks[0] != of_ranks[1]
    model.set_weights(small_model().get_weights())
    hvd.DistributedOptimizer(optimizer)
    fit(model, *mine(), callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    np.testing.assert_allclose(flat(model.weights), by_one_process(), atol=1e-6)
    assert_same_on_all_ranks(model.weights)


@optimizer_check
def a_train_step_of_ones_own_is_reduced() -> None:
    import keras

    import syrtos.keras as hvd

    backend = keras.backend.backend()

    class Own(keras.Sequential):  # type: ignore[misc]
        def train_step(self, *arguments: Any) -> Any:
            return getattr(self, f"{backend}_step")(*arguments)

        def tensorflow_step(self, data: Any) -> dict[str, Any]:
            import tensorflow as tf

            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

        def torch_step(self, data: Any) -> dict[str, Any]:
            import torch

            x, y = data
            self.zero_grad()
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
            loss.backward()
            with torch.no_grad():
                weights = list(self.trainable_weights)
                self.optimizer.apply([weight.value.grad for weight in weights], weights)
            return {"loss": loss}

        def jax_step(self, state: Any, data: Any) -> tuple[dict[str, Any], Any]:
            import jax

            weights, others, of_optimizer, metrics = state
            x, y = data

            def loss_of(weights: Any) -> Any:
                y_pred, left = self.stateless_call(weights, others, x, training=True)
                return self.compute_loss(x=x, y=y, y_pred=y_pred), left

            (loss, left), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
            weights, of_optimizer = self.optimizer.stateless_apply(of_optimizer, gradients, weights)
            return {"loss": loss}, (weights, left, of_optimizer, metrics)

    model = Own(small_model().layers)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)), "mse")
    fit(model, *mine())
    np.testing.assert_allclose(flat(model.weights), by_one_process(), atol=1e-6)
    assert_same_on_all_ranks(model.weights)


def tensorflow_loop(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    import tensorflow as tf

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    step()  # eagerly
    compiled = tf.function(step)
    for _ in range(2):
        compiled()


def torch_loop(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    import torch

    for _ in range(3):
        model.zero_grad()
        loss = ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
        loss.backward()
        own = [weight.value.grad.clone() for weight in model.trainable_weights]
        with torch.no_grad():
            optimizer.apply([w.value.grad for w in model.trainable_weights])
        left = [weight.value.grad for weight in model.trainable_weights]
        assert all(torch.equal(a, b) for a, b in zip(own, left, strict=True))


def jax_loop(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    import jax

    def loss_of(weights: Any) -> Any:
        predicted, _ = model.stateless_call(weights, [], x)
        return ((predicted - y) ** 2).mean()

    def step(weights: Any, state: Any) -> Any:
        return optimizer.stateless_apply(state, jax.grad(loss_of)(weights), weights)

    weights = [weight.value for weight in model.trainable_variables]
    state = [variable.value for variable in optimizer.variables]
    weights, state = step(weights, state)  # at once
    compiled = jax.jit(step)
    for _ in range(2):
        weights, state = compiled(weights, state)
    for variable, value in zip(model.trainable_variables, weights, strict=True):
        variable.assign(value)


@optimizer_check
def a_loop_of_ones_own_is_reduced() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model(seed=1 + hvd.rank())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE))
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([*model.weights, *optimizer.variables], 0)
    globals()[f"{keras.backend.backend()}_loop"](model, optimizer, *mine())
    np.testing.assert_allclose(flat(model.weights), by_one_process(), atol=1e-6)
    assert_same_on_all_ranks(model.weights)


@optimizer_check
def rows_of_an_embedding_train_as_in_one_process() -> None:
    import keras

    import syrtos.keras as hvd

    def make() -> Any:
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(6, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
        return keras.Sequential([keras.Input((4,), dtype="int32"), *layers])

    rng = np.random.default_rng(5)
    x, y = rng.integers(0, 6, (ROWS * RANKS, 4)).astype("int32"), data()[1]
    plain = make()
    plain.compile(keras.optimizers.SGD(RATE, global_clipnorm=0.5), "mse")
    fit(plain, x, y)
    on_tensorflow = keras.backend.backend() == "tensorflow"
    for jit, dense in ((False, False), *([(True, False)] if on_tensorflow else [])):
        model = make()
        optimizer = keras.optimizers.SGD(RATE, global_clipnorm=0.5)
        hvd.DistributedOptimizer(optimizer, sparse_as_dense=dense)
        model.compile(optimizer, "mse", jit_compile=jit)
        fit(model, x[hvd.rank() :: RANKS], y[hvd.rank() :: RANKS])
        np.testing.assert_allclose(flat(model.weights), flat(plain.weights), atol=1e-6)
        assert_same_on_all_ranks(model.weights)


@optimizer_check
def layers_can_stay_local() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model()
    first, second, last = model.layers
    plain = small_model()
    plain.compile(keras.optimizers.SGD(RATE), "mse")
    fit(plain, *mine(), 1)  # what this rank would do alone
    for given in (second, [second, last]):
        model.set_weights(small_model().get_weights())
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(RATE), local_layers=given, scale_local_gradients=False
        )
        model.compile(optimizer, "mse")
        fit(model, *mine(), 1)
        assert_same_on_all_ranks(first.weights)
        of_ranks = hvd.allgather_object(flat(second.weights).tobytes())
        assert of_ranks[0] != of_ranks[1]
        np.testing.assert_allclose(flat(second.weights), flat(plain.layers[1].weights), atol=1e-6)
    np.testing.assert_allclose(flat(last.weights), flat(plain.layers[2].weights), atol=1e-6)
    whole = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(RATE))
    model.set_weights(small_model().get_weights())
    model.compile(whole, "mse")
    fit(model, *mine())
    np.testing.assert_allclose(flat(model.weights), by_one_process(), atol=1e-6)


@optimizer_check
def local_layers_need_not_be_built() -> None:
    import keras

    import syrtos.keras as hvd

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(RATE), local_layers=model.layers[0]
    )
    model.compile(optimizer, "mse")
    fit(model, *mine(), 1)
    of_ranks = hvd.allgather_object(flat(model.layers[0].weights).tobytes())
    assert of_ranks[0] != of_ranks[1]
    assert_same_on_all_ranks(model.layers[1].weights)


@optimizer_check
def mixed_precision_wraps_the_optimizer_and_trains() -> None:
    import keras

    import syrtos.keras as hvd

    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = small_model()
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam()), loss="mse")
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        fit(model, *mine(), 4)
    finally:
        keras.config.set_dtype_policy("float32")
    assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])
    assert int(model.optimizer.inner_optimizer.iterations) > 0


@optimizer_check
def float8_scales_are_equal_on_all_ranks() -> None:
    import keras

    import syrtos.keras as hvd

    if not hasattr(keras.layers.Dense, "quantize"):
        return
    model = small_model()
    for layer in model.layers[:2]:
        layer.quantize("float8")
    start = flat(model.weights)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    x, y = mine()
    fit(model, x * (1 + hvd.rank()), y, 3)
    assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])
    assert (flat(model.weights) != start).any()
    names = [weight.path for weight in model.weights]
    (history,) = [
        weight
        for name, weight in zip(names, model.weights, strict=True)
        if name.endswith("inputs_amax_history") and name.split("/")[-2] == model.layers[0].name
    ]
    largest = max(hvd.allgather_object(float(np.abs(x * (1 + hvd.rank())).max())))
    assert float(flat([history]).max()) == pytest.approx(largest)


@optimizer_check
def ranks_with_other_layer_numbers_train_together() -> None:
    import keras

    import syrtos.keras as hvd

    if hvd.rank() == 0:
        small_model()  # its layers use up some automatic names
    model = small_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)), loss="mse")
    fit(model, *mine(), callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert_same_on_all_ranks(model.weights)


@optimizer_check
def collectives_on_values() -> None:
    import keras

    import syrtos.keras as hvd

    rank = hvd.rank()
    number = keras.Variable(np.array([1.0 + rank], "float32"))
    for value in (np.array([1.0 + rank], "float32"), number, number.value):
        result = hvd.allreduce(value)
        assert keras.ops.is_tensor(result)
        assert keras.ops.convert_to_numpy(result).tolist() == [1.5]
    assert float(hvd.allreduce(1.0 + rank, op=hvd.Sum)) == 3.0
    assert float(hvd.allreduce(1.0 + rank, op=hvd.Max, postscale_factor=2.0)) == 4.0
    assert float(hvd.allreduce(1.0 + 2.0**-12, compression=hvd.Compression.fp16)) == 1.0
    with pytest.raises(ValueError, match="twice"):
        hvd.allreduce(1.0, average=True, op=hvd.Sum)
    numpy = keras.ops.convert_to_numpy
    assert numpy(hvd.allgather(np.full(rank + 1, rank))).tolist() == [0, 1, 1]
    assert numpy(hvd.broadcast(np.array([rank]), 1)).tolist() == [1]
    scattered = hvd.reducescatter(np.array([2.0, 4.0], "float32"), op=hvd.Sum)
    assert numpy(scattered).tolist() == [4.0 * (rank + 1)]
    with pytest.raises(RuntimeError, match="BroadcastGlobalVariablesCallback"):
        hvd.broadcast_global_variables(0)
    assert hvd.broadcast_object({"rank": rank}, 1) == {"rank": 1}
    assert hvd.allgather_object(rank) == list(range(RANKS))
