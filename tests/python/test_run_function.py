"""``syrtos.run``: results, failures and limits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ranks
from ranks import at_step, delay_at, kill_at, run_ranks

import syrtos
from syrtos.errors import CollectiveTimeout, InvalidRequestError, PeerLostError, SyrtosError

OFFSET = 10


def who(*args, **kwargs):
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    return [int(os.environ[f"SYRTOS_{name}"]) for name in names], args, kwargs


def test_results_come_in_rank_order():
    assert run_ranks(who, 3, "a", b=2) == [
        ([rank, 3, rank, 3, 0, 1], ("a",), {"b": 2}) for rank in range(3)
    ]


@pytest.mark.ranks(2)
def test_the_marker_runs_the_body_on_ranks():
    assert os.environ["SYRTOS_SIZE"] == "2"
    assert ranks.rank() in (0, 1)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("value", [1, "x"])
def test_the_marker_passes_parameters(value):
    assert value in (1, "x")


def test_one_rank_is_the_default():
    assert len(syrtos.run(lambda: 1)) == 1


def test_closures_and_globals_travel_by_value():
    local = 5

    def add(x):
        return x + local + OFFSET

    assert syrtos.run(add, (1,), num_proc=1) == [16]


def test_a_large_argument_and_result_survive():
    block = os.urandom(1 << 20) * 8
    first, second = syrtos.run(lambda data: data[::-1], (block,), np=2)
    assert first == second == block[::-1]


def test_a_lambda_and_a_local_class_can_be_returned():
    class Local:
        x = 3

    value = syrtos.run(lambda: (Local(), lambda: 7))[0]
    assert isinstance(value[0], Local)
    assert value[1]() == 7


def test_the_ranks_have_the_callers_interpreter_folder_path_and_environment(monkeypatch):
    monkeypatch.setenv("SOME_TEXT", "x y\n'\"$(false)\udcff")
    got = syrtos.run(
        lambda: (sys.executable, Path.cwd(), sys.path, sys.argv, os.environb[b"SOME_TEXT"]),
        env={"OTHER": "1"},
    )[0]
    text = b"x y\n'\"$(false)\xff"
    assert got == (sys.executable, Path.cwd(), sys.path, sys.argv, text)


def test_env_is_set_beside_the_callers():
    assert syrtos.run(lambda: (os.environ["A B"], "PATH" in os.environ), env={"A B": "c d"}) == [
        ("c d", True)
    ]


def test_what_ranks_print_is_prefixed(capfd):
    def speak():
        print("out")
        print("err", end="", file=sys.stderr)

    run_ranks(speak, 2)
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["[0]<stdout>:out", "[1]<stdout>:out"]
    assert sorted(err.splitlines()) == ["[0]<stderr>:err", "[1]<stderr>:err"]


def test_output_goes_to_a_replaced_stdout(capsys):
    syrtos.run(lambda: print("to the notebook"))
    assert capsys.readouterr().out == "[0]<stdout>:to the notebook\n"


def test_it_works_from_a_thread():
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(syrtos.run(lambda: 1, np=2)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[1, 1], [1, 1]]


# ---- failures ----


def fail_on_one(error):
    if ranks.rank() == 1:
        raise error
    time.sleep(60)


def test_an_exception_is_raised_again_with_rank_and_traceback():
    begin = time.monotonic()
    with pytest.raises(KeyError, match="boo") as caught:
        run_ranks(fail_on_one, 2, KeyError("boo"))
    text = str(caught.value.__cause__)
    assert "rank 1 on localhost raised KeyError: 'boo'" in text
    assert re.search(r'File ".*/test_run_function.py", line \d+, in fail_on_one', text)
    assert "raise error" in text
    assert "also: rank 0 on localhost was stopped by the launcher" in text
    assert time.monotonic() - begin < 60  # against hanging only


def test_the_first_cause_comes_before_its_consequences():
    def fail():
        if ranks.rank() == 0:
            raise PeerLostError("rank 1 is gone")
        time.sleep(0.3)
        raise ZeroDivisionError("the cause")

    with pytest.raises(ZeroDivisionError, match="the cause") as caught:
        run_ranks(fail, 2)
    assert "also: rank 0 on localhost raised syrtos.errors.PeerLostError" in str(
        caught.value.__cause__
    )


class NeedsTwo(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.lock = threading.Lock()


def test_an_exception_that_cannot_be_pickled_is_told_as_text():
    def fail():
        raise NeedsTwo("this", "that")

    with pytest.raises(SyrtosError, match=r"rank 0 on localhost raised .*NeedsTwo: this and that"):
        run_ranks(fail, 1)


def test_a_result_that_cannot_be_pickled_names_rank_and_type():
    def fail():
        return threading.Lock() if ranks.rank() == 1 else 0

    expected = r"rank 1 on localhost raised TypeError: the result, of type _thread.lock, cannot"
    with pytest.raises(SyrtosError, match=expected):
        run_ranks(fail, 2)


def test_a_result_that_cannot_be_read_names_the_rank():
    class Poison:
        def __reduce__(self):
            return int, ("no number",)

    with pytest.raises(SyrtosError, match=r"rank 0 on localhost: its result cannot be read here"):
        syrtos.run(Poison)


def test_an_argument_that_cannot_be_pickled_is_refused():
    with pytest.raises(InvalidRequestError, match="cannot be pickled"):
        syrtos.run(len, (threading.Lock(),))


def step_through(steps):
    for step in range(steps):
        print("step", step, file=sys.stderr)
        at_step(step)
    return steps


def test_a_killed_rank_is_named_with_signal_and_last_lines():
    with pytest.raises(SyrtosError, match=r"rank 1 on .* was killed by SIGKILL \(9\)") as caught:
        run_ranks(step_through, 2, 5, env=kill_at(1, 3))
    assert str(caught.value).splitlines()[1:6] == [
        "its last lines on stderr:",
        *[f"step {step}" for step in range(4)],
    ]


def test_a_delayed_rank_lags():
    begin = time.monotonic()
    assert run_ranks(step_through, 2, 2, env=delay_at(0, 1, 0.4)) == [2, 2]
    assert time.monotonic() - begin > 0.4


@pytest.mark.parametrize(
    ("leave", "expected"),
    [
        (lambda: sys.exit(0), "exited with code 0 and returned nothing"),
        (lambda: sys.exit(3), "exited with code 3"),
        (lambda: os._exit(0), "exited with code 0 and returned nothing"),
        (lambda: os.abort(), r"was killed by SIGABRT \(6\)"),
    ],
)
def test_leaving_instead_of_returning_is_an_error(leave, expected):
    with pytest.raises(SyrtosError, match=rf"rank 0 on localhost \(pid \d+\) {expected}"):
        syrtos.run(leave)


def test_dying_after_the_return_is_an_error():
    def fail():
        import atexit

        atexit.register(os.kill, os.getpid(), signal.SIGSEGV)

    with pytest.raises(SyrtosError, match=r"SIGSEGV \(11\), after its function had returned"):
        syrtos.run(fail)


def test_a_failed_rank_ends_although_its_threads_go_on():
    def fail():
        threading.Thread(target=time.sleep, args=(60,)).start()
        raise ValueError("not stuck")

    begin = time.monotonic()
    with pytest.raises(ValueError, match="not stuck"):
        syrtos.run(fail)
    assert time.monotonic() - begin < 60  # against hanging only


# ---- limits ----


def wait_in_here():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Event().wait()


def test_a_timeout_dumps_all_stacks_and_kills(capfd):
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="ranks 0, 1 did not finish within 1 s") as caught:
        run_ranks(wait_in_here, 2, timeout=1)
    assert time.monotonic() - begin < 60  # against hanging only
    assert isinstance(caught.value, CollectiveTimeout)
    for rank in range(2):
        assert f"stacks of rank {rank}:" in str(caught.value)
        assert re.search(rf"\[{rank}\]<stderr>:.*in wait_in_here", capfd.readouterr().err) or rank
    assert str(caught.value).count("in wait_in_here") == 2


def test_a_timeout_names_only_the_ranks_that_are_late():
    def late():
        if ranks.rank() == 1:
            time.sleep(60)

    with pytest.raises(TimeoutError, match="rank 1 did not finish within 0.7 s"):
        run_ranks(late, 2, timeout=0.7)


def test_a_timeout_that_does_not_pass_changes_nothing():
    assert run_ranks(who, 1, timeout=50)


def test_ctrl_c_ends_the_ranks(no_process_left):
    code = (
        "import syrtos, time\n"
        "try:\n"
        "    syrtos.run(lambda: (print('up'), time.sleep(60)), np=2)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for _ in range(2):
        assert process.stdout.readline().endswith("<stdout>:up\n")
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0].endswith("interrupted\n")
    assert time.monotonic() - begin < 60  # against hanging only


# ---- arguments ----


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"np": 0}, "np=0 is not a number of ranks"),
        ({"np": "2"}, "np='2' is not a number of ranks"),
        ({"np": 2, "num_proc": 3}, "num_proc=3 and np=2"),
        ({"np": 2, "hosts": "localhost:1"}, "2 processes > 1 slot"),
        ({"hosts": "elsewhere:1"}, "host 'elsewhere' is not this machine"),
        ({"min_np": 1}, "not supported by this version: min_np"),
        ({"use_mpi": True, "slots": 2}, "not supported by this version: slots, use_mpi"),
    ],
)
def test_wrong_arguments_are_refused(arguments, expected):
    with pytest.raises(InvalidRequestError, match=re.escape(expected)):
        syrtos.run(len, **arguments)


def test_the_signature_begins_as_horovods():
    import inspect

    names = list(inspect.signature(syrtos.run).parameters)
    assert names[:4] == ["func", "args", "kwargs", "num_proc"]
    assert names.index("np") == 24


def test_output_is_copied_to_files(tmp_path: Path):
    syrtos.run(lambda: print("kept"), np=2, output_filename=tmp_path / "logs")
    for rank in range(2):
        assert (tmp_path / "logs" / f"rank.{rank}" / "stdout").read_text() == "kept\n"
