"""Trains a classifier of handwritten digits with a loop of its own, on all ranks together.

    syrtosrun -np 2 python examples/tf_custom_loop.py

The images (8 x 8 pixels) come with scikit-learn. Lines marked (1) to (5) make it distributed.
"""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import syrtos.tensorflow as hvd

EPOCHS = 20
BATCH = 64  # images of all ranks together in one step
RATE = 0.2


def load_images():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32")
    return train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


class Network(tf.Module):
    def __init__(self):
        self.w1 = tf.Variable(tf.random.normal([64, 128]) * 0.1)
        self.b1 = tf.Variable(tf.zeros([128]))
        self.w2 = tf.Variable(tf.random.normal([128, 10]) * 0.1)
        self.b2 = tf.Variable(tf.zeros([10]))

    def __call__(self, x):
        return tf.nn.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2


def main():
    hvd.init()  # (1) meet the other ranks
    rank, size = hvd.rank(), hvd.size()
    x, x_test, y, y_test = load_images()
    steps = len(x) // BATCH
    shuffled = np.random.default_rng(0)  # the same order on all ranks

    network = Network()
    variables = network.trainable_variables
    velocity = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
    hvd.broadcast_variables(variables, root_rank=0)  # (2) begin with the same weights

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
            loss = tf.reduce_mean(losses)
        tape = hvd.DistributedGradientTape(tape)  # (3) average the gradients over all ranks
        for v, m, grad in zip(variables, velocity, tape.gradient(loss, variables), strict=True):
            m.assign(0.9 * m + grad)
            v.assign_sub(RATE * m)
        return loss

    for epoch in range(EPOCHS):
        order = shuffled.permutation(len(x))
        losses = []
        for start in range(0, steps * BATCH, BATCH):
            mine = order[start + rank : start + BATCH : size]  # (4) this rank's share of the batch
            losses.append(step(tf.constant(x[mine]), tf.constant(y[mine])))
        loss = hvd.allreduce(tf.reduce_mean(losses))  # (5) the mean over all ranks
        if rank == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {float(loss):.4f}")

    right = np.argmax(network(x_test), axis=1) == y_test
    weights = np.concatenate([v.numpy().ravel() for v in variables])
    same = all(np.array_equal(weights, other) for other in hvd.allgather_object(weights))
    if rank == 0:
        print(f"test accuracy: {100 * right.mean():.1f}%")
        print(f"weights identical on all {size} ranks: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
