"""Trains a small convolutional network on handwritten digits, on all ranks together.

    syrtosrun -np 2 python examples/keras_digits.py
    KERAS_BACKEND=torch syrtosrun -np 2 python examples/keras_digits.py    (or jax)

The images (8 x 8 pixels) come with scikit-learn. Lines marked (1) to (6) make it distributed.
"""

import hashlib
import os
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import syrtos.keras as hvd

EPOCHS = 15
BATCH = 32  # images of each rank in one step


def load_images():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype("float32")
    return train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


def make_model(optimizer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu", padding="same"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(model, x, y, epochs, **options):
    """Train; images of this process per second, without the first epoch, which builds the graph."""
    starts = []
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: starts.append(time.perf_counter())
    )
    callbacks = [*options.pop("callbacks", []), clock]
    model.fit(x, y, batch_size=BATCH, epochs=epochs, callbacks=callbacks, **options)
    return (epochs - 1) * len(x) / (time.perf_counter() - starts[1])


def main():
    hvd.init()  # (1) meet the other ranks
    rank, size = hvd.rank(), hvd.size()
    x, x_test, y, y_test = load_images()

    # (2) each rank takes its share of the images, equally many so that they take equally many steps
    mine = slice(rank, len(x) // size * size, size)

    # (3) gradients are averaged over the ranks; the rate grows with the batch
    model = make_model(hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * size)))
    speed = train(
        model,
        x[mine],
        y[mine],
        EPOCHS,
        verbose=1 if rank == 0 else 0,  # (4) one progress bar is enough
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # (5) begin with equal weights
            hvd.callbacks.MetricAverageCallback(),  # (6) metrics over the images of all ranks
        ],
    )
    _, accuracy = model.evaluate(x_test[rank::size], y_test[rank::size], verbose=0)
    speed = float(hvd.allreduce(speed, op=hvd.Sum))
    weights = b"".join(w.tobytes() for w in model.get_weights())
    identical = len(set(hvd.allgather_object(hashlib.sha256(weights).digest()))) == 1

    if rank == 0:  # the same network in this process alone, while the others wait
        alone = train(make_model(keras.optimizers.Adam(0.001)), x, y, 5, verbose=0)
        print(
            f"\ntest accuracy: {accuracy:.1%}\n"
            f"images/s: {speed:,.0f} on {size} ranks, {alone:,.0f} in one process\n"
            f"weights identical on all ranks: {'yes' if identical else 'NO'}",
            flush=True,
        )
    hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    main()
