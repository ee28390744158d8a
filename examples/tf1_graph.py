"""Trains a classifier of handwritten digits in a graph of tf.compat.v1, on all ranks together.

    syrtosrun -np 2 python examples/tf1_graph.py

The images (8 x 8 pixels) come with scikit-learn. Lines marked (1) to (5) make it distributed.
"""

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import syrtos.tensorflow as hvd

EPOCHS = 20
BATCH = 64  # images of all ranks together in one step

tf.disable_v2_behavior()


def load_images():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32")
    return train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


def layer(x, width, name):
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [x.shape[1], width])
        return x @ weights + tf.get_variable("bias", initializer=np.zeros(width, np.float32))


def main():
    hvd.init()  # (1) meet the other ranks
    rank, size = hvd.rank(), hvd.size()
    x, x_test, y, y_test = load_images()
    steps = len(x) // BATCH

    images = tf.placeholder(tf.float32, [None, 64])
    labels = tf.placeholder(tf.int64, [None])
    logits = layer(tf.nn.relu(layer(images, 128, "hidden")), 10, "output")
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    optimizer = tf.train.MomentumOptimizer(0.2, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer)  # (2) average the gradients over all ranks
    global_step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=global_step)

    right = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.int32))
    right_of_all = hvd.allreduce(right, op=hvd.Sum, name="right")  # (3) test images are shared out

    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),  # (4) begin with rank 0's weights
        tf.train.StopAtStepHook(last_step=EPOCHS * steps),
    ]
    shuffled = np.random.default_rng(0)  # the same order on all ranks
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        while not session.should_stop():
            order = shuffled.permutation(len(x))
            for start in range(0, steps * BATCH, BATCH):
                mine = order[start + rank : start + BATCH : size]  # (5) this rank's share
                feed = {images: x[mine], labels: y[mine]}
                if start == (steps - 1) * BATCH:  # the last one, after which it may stop
                    test = {images: x_test[rank::size], labels: y_test[rank::size]}
                    count, weights = session.run([right_of_all, tf.trainable_variables()], test)
                session.run(train, feed)

    everybodys = hvd.allgather_object([w.tobytes() for w in weights])
    if rank == 0:
        print(f"test accuracy: {100 * count / len(x_test):.1f}%")
        same = all(other == everybodys[0] for other in everybodys)
        print(f"weights identical on all {size} ranks: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
