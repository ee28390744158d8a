"""`import horovod` on Syrtos: one module under both names, wherever it is imported."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import horovod
import syrtos

ALIAS = Path(horovod.__file__).parent
DISTRIBUTION = ALIAS.parents[1]


def python(
    *arguments: str, code: int = 0, path: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter; `path` is a folder that it searches first."""
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        cwd="/",
    )
    assert done.returncode == code, done.stderr
    return done


SHARED = {
    "horovod.common.elastic": "syrtos.elastic",
    "horovod.common.elastic.state": "syrtos.elastic.state",
    "horovod.common.process_sets": "syrtos.process_sets",
}
SHARED_TORCH = {
    "horovod.torch": "syrtos.torch",
    "horovod.torch.compression": "syrtos.torch.compression",
    "horovod.torch.elastic": "syrtos.torch.elastic",
    "horovod.torch.elastic.sampler": "syrtos.torch.elastic.sampler",
    "horovod.torch.elastic.state": "syrtos.torch.elastic.state",
    "horovod.torch.functions": "syrtos.torch.functions",
    "horovod.torch.optimizer": "syrtos.torch.optimizer",
    "horovod.torch.sync_batch_norm": "syrtos.torch.sync_batch_norm",
}
SHARED_TENSORFLOW = {
    "horovod.keras": "syrtos.keras",
    "horovod.keras.callbacks": "syrtos.keras.callbacks",
    "horovod.keras.elastic": "syrtos.keras.elastic",
    "horovod.tensorflow": "syrtos.tensorflow",
    "horovod.tensorflow.functions": "syrtos.tensorflow.functions",
    "horovod.tensorflow.keras": "syrtos.tensorflow.keras",
    "horovod.tensorflow.keras.callbacks": "syrtos.keras.callbacks",
    "horovod.tensorflow.keras.elastic": "syrtos.keras.elastic",
}

# Checks a table of SHARED in a fresh interpreter: alias first, then Syrtos first.
SAME = """
import importlib, json, sys
table = json.loads(sys.argv[1])
for old, new in table.items():
    for name in (old, new) if sys.argv[2] == "alias first" else (new, old):
        importlib.import_module(name)
    module = sys.modules[old]
    assert module is sys.modules[new], old
    assert module.__name__ == module.__spec__.name == new, old
    parent, _, child = old.rpartition(".")
    assert getattr(sys.modules[parent], child) is module, old
    assert importlib.util.find_spec(old) is module.__spec__, old
for old, new in table.items():
    file = sys.modules[new].__file__  # it has been loaded once
    found = {id(m) for m in sys.modules.values() if getattr(m, "__file__", "") == file}
    assert len(found) == 1, new
"""


def check_same(table: dict[str, str], order: str) -> None:
    import json

    python("-c", SAME, json.dumps(table), order)


@pytest.mark.parametrize("order", ["alias first", "syrtos first"])
def test_modules_without_framework_are_shared(order):
    check_same(SHARED, order)


@pytest.mark.torch
@pytest.mark.parametrize("order", ["alias first", "syrtos first"])
def test_modules_for_torch_are_shared(order):
    check_same(SHARED_TORCH, order)


@pytest.mark.tensorflow
@pytest.mark.keras
def test_modules_for_tensorflow_and_keras_are_shared():
    check_same(SHARED_TENSORFLOW, "alias first")


TORCH = """
import horovod.torch as hvd
from horovod.torch import elastic, mpi_ops
from horovod.torch.mpi_ops import synchronize
import horovod.common.exceptions, horovod.common.elastic, syrtos

assert hvd.mpi_ops is mpi_ops and hvd.elastic is elastic
assert synchronize is hvd.synchronize and mpi_ops.allreduce is hvd.allreduce
assert hvd.HorovodInternalError is horovod.common.exceptions.HorovodInternalError
assert issubclass(hvd.elastic.TorchState, horovod.common.elastic.State)
hvd.init()
assert syrtos.is_initialized() and hvd.size() == syrtos.size() == 1
basics = hvd.mpi_ops._basics
assert basics.rank() == 0 and basics.Average == 0 and basics._process_set_size(0) == 1
assert basics._get_process_set_ids_and_ranks() == {0: [0]}
assert mpi_ops.handle_average_backwards_compatibility(None, False) == hvd.Sum
try:
    import horovod.torch.nonsense
except ModuleNotFoundError as error:
    assert error.name == "horovod.torch.nonsense", error.name
else:
    raise AssertionError
"""
TENSORFLOW = """
import horovod.tensorflow as hvd
import tensorflow as tf

assert hvd._executing_eagerly() and not tf.function(hvd._executing_eagerly)()
from horovod.tensorflow import keras
import syrtos.keras
import horovod.tensorflow.keras as tk
assert tk is keras is hvd.keras and keras.DistributedOptimizer is syrtos.keras.DistributedOptimizer
assert hvd.mpi_ops.allreduce is hvd.allreduce
assert hvd.split_list([1, 2, 3], 2) == [[1, 2], [3]]
v = tf.Variable(1.0)
assert hvd.refs_to_vars(hvd.vars_to_refs([v, [v]])) == [v, [v]]
hvd.init()
assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0]}
"""


@pytest.mark.torch
def test_names_of_horovod_torch():
    python("-c", TORCH)


@pytest.mark.tensorflow
def test_names_of_horovod_tensorflow():
    python("-c", TENSORFLOW)


def test_a_spec_can_be_asked_for_without_importing():
    code = """
import importlib.util, sys
spec = importlib.util.find_spec("horovod.torch")
assert spec.name == "horovod.torch" and spec.submodule_search_locations and spec.origin, spec
assert importlib.util.find_spec("horovod.spark") is None
assert "torch" not in sys.modules and "syrtos.torch" not in sys.modules
import horovod
assert horovod.__version__ == "0.28.1" and "syrtos.launcher" not in sys.modules
"""
    python("-c", code)


def test_many_threads_get_the_same_module():
    code = """
import sys, threading
start = threading.Barrier(8)
found = []
def load():
    start.wait()
    from horovod.common.elastic import ObjectState
    import horovod.common.process_sets as sets
    found.append((ObjectState, sets))
threads = [threading.Thread(target=load) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
import syrtos.elastic, syrtos.process_sets
assert found == [(syrtos.elastic.ObjectState, syrtos.process_sets)] * 8
assert syrtos.elastic.__spec__.name == "syrtos.elastic"
"""
    for _ in range(5):
        python("-c", code)


def test_mock_patch_works_through_both_names():
    import horovod.common.process_sets as old
    import syrtos.process_sets as new

    original = new.add_process_set
    for name in ("horovod.common.process_sets", "syrtos.process_sets"):
        with mock.patch(f"{name}.add_process_set") as fake:
            assert old.add_process_set is new.add_process_set is fake
        assert old.add_process_set is new.add_process_set is original
    with mock.patch("horovod.run") as fake:
        assert horovod.run is fake
    assert horovod.run is importlib.import_module("horovod.runner").run


def test_pickles_of_either_name_can_be_read():
    import cloudpickle

    import horovod.common.elastic

    assert pickle.loads(b"chorovod.common.elastic\nObjectState\n.") is syrtos.elastic.ObjectState
    state = pickle.loads(pickle.dumps(horovod.common.elastic.HostUpdateResult.added))
    assert state is syrtos.elastic.HostUpdateResult.added
    function = cloudpickle.dumps(lambda: horovod.common.elastic.HostUpdateResult(3).name)
    code = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1]))())"
    assert python("-c", code, function.hex()).stdout == "mixed\n"


def test_a_spawned_child_imports_it_afresh(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text("""
import multiprocessing
from horovod.common.elastic import HostUpdateResult

def child(queue):
    import horovod.common.elastic, syrtos.elastic
    queue.put((HostUpdateResult.added, horovod.common.elastic is syrtos.elastic))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=30) == (HostUpdateResult.added, True)
    process.join()
""")
    python(str(script))


@pytest.mark.parametrize("module", ["horovod.runner", "horovod.runner.launch"])
def test_the_launcher_runs_as_a_module(module):
    assert python("-m", module, "--version").stdout == "0.28.1\n"


def test_a_shared_module_runs_as_a_script(tmp_path):
    """``python -m`` asks the finder's loader for the code of the counterpart."""
    code = """
import runpy, sys
import horovod
spec = next(f for f in sys.meta_path if type(f).__module__ == "horovod._alias").find_spec(
    "horovod.common.process_sets")
assert "add_process_set" in spec.loader.get_source(spec.name)
assert not spec.loader.is_package(spec.name)
names = runpy.run_module("horovod.common.process_sets", run_name="__main__")
assert names["__name__"] == "__main__" and "add_process_set" in names
"""
    python("-c", code)


def test_alias_and_syrtos_are_of_one_version():
    from importlib.metadata import requires, version

    assert version("syrtos-horovod") == version("syrtos")
    assert f"syrtos=={version('syrtos')}" in (requires("syrtos-horovod") or [])


# ---- beside the original ----


def put_horovod(folder: Path, version: str) -> Path:
    info = folder / f"horovod-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: horovod\nVersion: {version}\n")
    return info


def test_it_refuses_to_stand_beside_the_original(tmp_path):
    info = put_horovod(tmp_path, "0.28.1")
    done = python("-c", "import horovod.torch", code=1, path=tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: the original Horovod 0.28.1 is installed too")
    assert str(info) in last
    assert "pip uninstall horovod" in last
    assert "pip uninstall syrtos-horovod" in last


def test_the_distribution_that_only_has_the_name_is_no_original(tmp_path):
    put_horovod(tmp_path, "0.28.1+syrtos")
    python("-c", "import horovod", path=tmp_path)


def test_the_name_can_be_installed(tmp_path):
    """A package that requires ``horovod`` finds it, and it brings syrtos-horovod."""
    import shutil

    source = tmp_path / "source"
    shutil.copytree(DISTRIBUTION / "requirement", source)
    target = tmp_path / "site"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-q"]
    python("-m", "pip", "install", *options, "--target", str(target), str(source), timeout=120)
    assert [path.name for path in target.iterdir()] == ["horovod-0.28.1+syrtos.dist-info"]
    code = """
from importlib.metadata import distribution
from packaging.requirements import Requirement
found = distribution("horovod")
assert Requirement("horovod>=0.27,<0.29").specifier.contains(found.version)
assert found.requires == ["syrtos-horovod"]
import horovod
"""
    python("-c", code, path=target)
