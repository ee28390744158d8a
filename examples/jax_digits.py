"""Trains a small network on handwritten digits with JAX and optax, on all ranks together.

    syrtosrun -np 2 python examples/jax_digits.py

The images (8 x 8 pixels) come with scikit-learn. Lines marked (1) to (5) make it distributed.
"""

import hashlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import syrtos.jax as hvd

EPOCHS = 30
BATCH = 32  # images of each rank in one step


def load_images():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32")
    return train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


def make_params(key, sizes=(64, 128, 64, 10)):
    keys = jax.random.split(key, len(sizes))
    return [
        {"w": jax.random.normal(k, (n, m)) * (2 / n) ** 0.5, "b": jnp.zeros(m)}
        for k, n, m in zip(keys, sizes[:-1], sizes[1:])  # noqa: B905 (one key is left)
    ]


def predict(params, x):
    *hidden, last = params
    for layer in hidden:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def loss_of(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(predict(params, x), y).mean()


def main():
    hvd.init()  # (1) meet the other ranks
    rank, size = hvd.rank(), hvd.size()
    x, x_test, y, y_test = load_images()

    # (2) each rank takes its share of the images, equally many so that they take equally many steps
    mine = slice(rank, len(x) // size * size, size)
    x, y = x[mine], y[mine]

    # (3) gradients are averaged over the ranks; the rate grows with the batch
    optimizer = hvd.DistributedOptimizer(optax.adam(0.001 * size))
    params = make_params(jax.random.key(rank))
    params = hvd.broadcast_parameters(params, root_rank=0)  # (4) begin with equal weights
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, x, y):
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, hvd.allreduce(loss)

    shuffle = np.random.default_rng(rank)
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        order = shuffle.permutation(len(x))
        for begin in range(0, len(x) - BATCH + 1, BATCH):
            chosen = order[begin : begin + BATCH]
            params, state, loss = step(params, state, x[chosen], y[chosen])
        if rank == 0 and epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {loss:.4f}", flush=True)
    seconds = time.perf_counter() - start

    right = jnp.mean(jnp.argmax(predict(params, x_test[rank::size]), 1) == y_test[rank::size])
    accuracy = float(hvd.allreduce(right))  # (5) over the test images of all ranks
    weights = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))
    identical = len(set(hvd.allgather_object(hashlib.sha256(weights).digest()))) == 1
    if rank == 0:
        print(
            f"test accuracy: {accuracy:.1%}\n"
            f"images/s: {EPOCHS * len(x) * size / seconds:,.0f} on {size} ranks\n"
            f"weights identical on all ranks: {'yes' if identical else 'NO'}",
            flush=True,
        )
    hvd.shutdown()


if __name__ == "__main__":
    main()
