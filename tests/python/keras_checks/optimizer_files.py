"""Copies, pickles and files of models whose optimizer is distributed."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from keras_checks import assert_same_on_all_ranks, flat, optimizer_check, small_model
from keras_checks.optimizer_models import fit, mine


@optimizer_check
def copies_stay_distributed_and_pickles_do_not() -> None:
    import keras

    import syrtos.keras as hvd
    from keras_checks.optimizer_steps import applied

    made = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1.0)
    hvd.DistributedOptimizer(scaled)
    for optimizer in (made, scaled):
        twin = copy.deepcopy(optimizer)
        inner = getattr(twin, "inner_optimizer", twin)
        assert inner._clip_gradients.__self__ is inner
        assert inner is not getattr(optimizer, "inner_optimizer", optimizer)
        for one in (optimizer, twin):
            np.testing.assert_array_equal(applied(one, [[1.0], [3.0]], [0.0]), [-2.0])
    plain = pickle.loads(pickle.dumps(made))
    assert applied(plain, [[1.0], [3.0]], [0.0]) == [-1.0, -3.0][hvd.rank()]


@optimizer_check
def a_saved_model_is_plain_keras_and_can_be_wrapped_again() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    fit(model, *mine(), 4)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        text = zipfile.ZipFile(path).read("config.json").decode()
        plain = keras.saving.load_model(path)
        loaded = hvd.load_model(path, compression=hvd.Compression.fp16)
    assert "syrtos" not in text.lower()
    saved = json.loads(text)["compile_config"]["optimizer"]
    assert saved["class_name"] == "Adam"
    assert type(plain.optimizer) is type(model.optimizer)
    assert int(plain.optimizer.iterations) == 4
    np.testing.assert_array_equal(flat(plain.weights), flat(model.weights))
    # The plain one trains alone, the wrapped one together with the others.
    fit(plain, *mine(), 2)
    fit(loaded, *mine(), 2)
    assert int(loaded.optimizer.iterations) == 6
    assert_same_on_all_ranks([*loaded.weights, *loaded.optimizer.variables])
    of_ranks = hvd.allgather_object(flat(plain.weights).tobytes())
    assert of_ranks[0] != of_ranks[1]


@optimizer_check
def a_model_with_optimizers_of_ones_own_is_loaded() -> None:
    import keras

    import syrtos.keras as hvd

    class Mine(keras.optimizers.SGD):  # type: ignore[misc]
        pass

    model = small_model()
    model.compile(optimizer=hvd.DistributedOptimizer(Mine(0.01)), loss="mse")
    fit(model, *mine(), 2)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        for options in ({"custom_optimizers": [Mine]}, {"custom_objects": {"Mine": Mine}}):
            loaded = hvd.load_model(path, **options)
            assert type(loaded.optimizer) is Mine
            fit(loaded, *mine(), 1)
            assert int(loaded.optimizer.iterations) == 3
            assert_same_on_all_ranks(loaded.weights)


# Where importing Syrtos fails, as where it is not installed.
WITHOUT_SYRTOS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("syrtos", "horovod"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import keras, numpy as np

model = keras.saving.load_model(sys.argv[1])
for path in sys.argv[2:]:
    keras.saving.load_model(path)
rows = np.ones((8, 8), "float32")
state = [keras.ops.convert_to_numpy(v) for v in [*model.weights, *model.optimizer.variables]]
np.savez(sys.argv[1] + ".npz", *state)
model.fit(rows, rows[:, :1], verbose=0)
assert "syrtos" not in sys.modules
print("iterations", int(model.optimizer.iterations))
"""


@optimizer_check
def a_saved_model_loads_where_syrtos_is_not_installed() -> None:
    import keras

    import syrtos.keras as hvd

    model = small_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    fit(model, *mine(), 4)
    scaled = small_model()
    inner = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9))
    scaled.compile(keras.optimizers.LossScaleOptimizer(inner), "mse")
    fit(scaled, *mine(), 1)
    if hvd.rank() > 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("model.keras", "scaled.keras")]
        model.save(paths[0])
        scaled.save(paths[1])
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_SYRTOS, *paths],
            env={k: v for k, v in os.environ.items() if not k.startswith("SYRTOS_")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        loaded = np.load(paths[0] + ".npz")
        state = [loaded[name] for name in loaded.files]
    assert done.stdout.split()[-2:] == ["iterations", "5"]
    expected = [keras.ops.convert_to_numpy(v) for v in [*model.weights, *model.optimizer.variables]]
    assert len(state) == len(expected)
    for got, wanted in zip(state, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
