"""``horovodrun`` and ``horovod.run`` at work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import horovod
from horovod.runner import _HorovodArgs, launch
from syrtos.errors import InvalidRequestError, SyrtosError

BASE = ["-np", "2"]

# ---- the command ----


def horovodrun(*arguments: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("horovodrun"), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


SHOW = "import os; print(*(os.environ['HOROVOD_' + n] for n in ('RANK', 'SIZE', 'LOCAL_RANK', "
SHOW += "'LOCAL_SIZE', 'CROSS_RANK', 'CROSS_SIZE')), os.environ['SYRTOS_CACHE_CAPACITY'])"


def test_horovodrun_runs_a_program_with_one_warning():
    options = ["--cache-capacity", "5", "--autotune", "--mpi"]
    done = horovodrun(*BASE, *options, sys.executable, "-c", SHOW)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0]<stdout>:0 2 0 2 0 1 5",
        "[1]<stdout>:1 2 1 2 0 1 5",
    ]
    named = [line for line in done.stderr.splitlines() if "without effect" in line]
    assert named == ["horovodrun: accepted without effect in Syrtos: --autotune, --mpi"]


def test_horovodrun_fails_like_the_first_rank_and_in_its_own_name():
    done = horovodrun(*BASE, sys.executable, "-c", "raise SystemExit(7)")
    assert done.returncode == 7
    assert "horovodrun: first failure: rank" in done.stderr
    assert "syrtosrun" not in done.stderr
    done = horovodrun("prog")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "horovodrun: -np is missing: say how many processes to start\n"


def test_horovodrun_tells_its_version_and_what_is_built(monkeypatch, capsys):
    from horovod.common import util

    assert horovodrun("--version").stdout == "0.28.1\n"
    monkeypatch.setattr(util, "extension_available", lambda name, verbose: name == "torch")
    monkeypatch.setattr(util, "gloo_built", lambda verbose: True)
    for option in ("-cb", "--check-build"):
        with pytest.raises(SystemExit) as caught:
            launch._read([option])
        assert caught.value.code == 0
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert lines[0] == "Horovod v0.28.1 (Syrtos):"
        assert [line[4:] for line in lines if line.startswith("[X]")] == ["PyTorch", "Gloo", "Gloo"]
        assert "[ ] TensorFlow" in lines
        assert "[ ] MPI" in lines


# ---- horovod.run ----


def who(*values: int, **more: int) -> tuple[str, str, int]:
    return os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"], sum(values) + sum(more.values())


def test_run_returns_the_results_in_order():
    assert horovod.run(who) == [("0", "1", 0)]
    found = horovod.run(who, (1, 20), {"c": 300}, num_proc=2, use_gloo=True)
    assert found == [("0", "2", 321), ("1", "2", 321)]


def test_run_passes_settings_on(tmp_path):
    def show() -> tuple[str, int]:
        print("hello")
        return os.environ["SYRTOS_START_TIMEOUT"], os.getpid()

    found = horovod.run(show, num_proc=1, start_timeout=11, output_filename=str(tmp_path))
    assert found[0][0] == "11"
    assert found[0][1] != os.getpid()
    assert (tmp_path / "rank.0" / "stdout").read_text() == "hello\n"


def test_run_has_older_spellings():
    with pytest.warns() as seen:
        found = horovod.run(who, np=2, min_np=2, max_np=2, network_interface="lo")
    assert [rank for rank, _, _ in found] == ["0", "1"]
    texts = [str(warning.message) for warning in seen]
    assert texts == [
        "horovod.run(np=...) is deprecated: use num_proc",
        "horovod.run(min_np=...) is deprecated: use min_num_proc",
        "horovod.run(max_np=...) is deprecated: use max_num_proc",
        "horovod.run(network_interface=...) is deprecated: use network_interfaces",
        "horovod.run: accepted without effect in Syrtos: nics, min_num_proc, max_num_proc",
    ]
    assert {warning.filename for warning in seen} == {__file__}


@pytest.mark.parametrize(
    "arguments",
    [
        {"min_num_proc": 1},
        {"max_num_proc": 3},
        {"slots": 2},
        {"reset_limit": 1},
        {"cooldown_range": (1, 2)},
        {"host_discovery_script": "./hosts.sh"},
    ],
)
def test_run_refuses_elastic_jobs(arguments):
    (name,) = arguments
    with pytest.raises(InvalidRequestError, match=rf"^{name}: elastic jobs are not supported"):
        horovod.run(who, num_proc=2, **arguments)


def fail_on_1() -> None:
    if os.environ["HOROVOD_RANK"] == "1":
        raise KeyError("planted")


def exit_on_1() -> None:
    if os.environ["HOROVOD_RANK"] == "1":
        os._exit(5)


def test_run_raises_horovods_words_with_the_cause():
    words = "Horovod detected that one or more processes exited"
    with pytest.raises(RuntimeError, match=words) as caught:
        horovod.run(fail_on_1, num_proc=2)
    assert "KeyError: 'planted'" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(RuntimeError, match=words) as caught:
        horovod.run(exit_on_1, num_proc=2)
    assert "rank 1" in str(caught.value)
    assert "code 5" in str(caught.value)
    assert isinstance(caught.value.__cause__, SyrtosError)


def test_run_raises_what_is_wrong_with_the_call_itself():
    import threading

    with pytest.raises(InvalidRequestError, match="cannot be pickled"):
        horovod.run(who, (threading.Lock(),))
    with pytest.raises(InvalidRequestError, match="'elsewhere' is not this machine"):
        horovod.run(who, hosts="elsewhere:1")


def test_a_bag_of_arguments_runs_a_command(capfd):
    args = _HorovodArgs()
    args.num_proc = args.min_num_proc = 2
    args.hosts = "localhost:2,127.0.0.1:2"
    args.command = [sys.executable, "-c", "print('hello')"]
    with pytest.warns(UserWarning, match="--min-np"):
        assert launch._run(args) is None
    assert capfd.readouterr().out.count("hello") == 2
    args.min_num_proc = None
    args.command = [sys.executable, "-c", "raise SystemExit(3)"]
    with pytest.raises(RuntimeError, match="exit code 3"):
        launch._run(args)


JOINED = """
import sys
import numpy as np
if sys.argv[1] == "horovod":
    import horovod
import syrtos.numpy as hvd

hvd.init()
outcome = "served"
if hvd.rank() == 1:
    try:
        assert hvd.allgather(np.ones((2, 1))).shape == (2, 1)
    except hvd.errors.HorovodInternalError as error:
        assert "rank 0" in str(error) and "join()" in str(error), error
        outcome = "refused"
assert hvd.join() == 1
print(outcome if hvd.rank() == 1 else "joined")
"""


@pytest.mark.parametrize(
    ("name", "strict", "outcome"),
    [("horovod", None, "refused"), ("horovod", "0", "served"), ("syrtos", None, "served")],
)
def test_a_joined_rank_is_an_error_where_horovod_is_imported(
    syrtosrun, tmp_path, monkeypatch, name, strict, outcome
):
    if strict is not None:
        monkeypatch.setenv("SYRTOS_STRICT_JOIN", strict)
    script = tmp_path / "joined.py"
    script.write_text(JOINED)
    ended = syrtosrun("-np", "2", sys.executable, str(script), name, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"[1]<stdout>:{outcome}" in ended.stdout.splitlines(), ended.stdout
