"""Init, shutdown, fork, exit and the first cause of a failure."""

from __future__ import annotations

import signal
import time

import pytest
from by_hand import Ended, Job, run, run_alone
from ranks import run_ranks


def quiet(ended: Ended, code: int = 0) -> None:
    assert (ended.code, ended.err) == (code, "")


def cycles_body() -> list[int]:
    import os

    import numpy as np

    import syrtos.numpy as st

    counts = []
    for cycle in range(20):
        st.init()
        st.init()  # harmless
        expected = [float(st.size())] * 3
        assert st.allreduce(np.ones(3), op=st.Sum, name="same").tolist() == expected
        assert st.allreduce(np.ones(3), op=st.Sum, name=f"new{cycle}").tolist() == expected
        extra = st.add_process_set([0]) if st.size() > 1 else None
        st.shutdown()
        st.shutdown()  # harmless
        assert not st.is_initialized()
        if extra is not None:
            assert extra.process_set_id is None
        counts.append(len(os.listdir("/proc/self/task")) + len(os.listdir("/proc/self/fd")))  # noqa: PTH208
    return counts


@pytest.mark.parametrize("ranks", [1, 2])
def test_many_cycles_leave_no_thread_and_no_descriptor(ranks: int) -> None:
    for counts in run_ranks(cycles_body, ranks):
        assert max(counts[2:]) <= counts[1] + 1, counts


def test_calls_outside_of_a_session_raise_at_once_and_name_init() -> None:
    quiet(
        run_alone(
            """
            import numpy as np, syrtos.numpy as st
            calls = [st.rank, st.size, st.local_rank, st.cross_size, st.is_homogeneous, st.barrier,
                     st.join, lambda: st.allreduce(np.ones(2)), lambda: st.broadcast_object(1),
                     lambda: st.allgather_async([1]), lambda: st.add_process_set([0]),
                     lambda: st.start_timeline("x"), st.global_process_set.size]
            def check():
                assert not st.is_initialized()
                for call in calls:
                    try:
                        call()
                    except st.errors.NotInitializedError as error:
                        assert "init" in str(error) and isinstance(error, ValueError)
                    else:
                        raise SystemExit(f"{call} went through")
            check()
            st.init()
            assert st.allreduce(np.ones(2)).tolist() == [1, 1]
            st.shutdown()
            check()
            """
        )
    )


def test_a_handle_of_a_closed_session_fails_instead_of_hanging() -> None:
    outcome = run(
        """
        import numpy as np, syrtos.numpy as st
        st.init()
        if st.rank() == 0:
            handle = st.allreduce_async(np.ones(3), name="never")
            st.shutdown()
            try:
                handle.wait()
            except st.errors.ShutdownError as error:
                print("shutdown:", error)
        """,
        2,
    )
    assert "shutdown:" in outcome[0].out
    assert outcome[0].code == 0


FORK = """
import os, sys
import numpy as np, syrtos.numpy as st
st.init()
child = os.fork()
if child == 0:
    code = 1
    try:
        st.allreduce(np.ones(3))
    except st.errors.NotInitializedError as error:
        text = str(error)
        code = 0 if "fork" in text and "spawn" in text and f"rank {st.rank()}" in text else 2
    try:
        st.init()
        code = 3
    except st.errors.NotInitializedError:
        pass
    if st.is_initialized() or st.size() != int(os.environ["SYRTOS_SIZE"]):
        code = 4
    st.shutdown()
    sys.exit(code)  # a full exit: nothing of the parent's may be destroyed
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert st.allreduce(np.ones(3), op=st.Sum).tolist() == [st.size()] * 3
"""


def test_a_forked_child_is_refused_and_does_no_harm() -> None:
    # Python 3.12 and later warn of any fork beside threads.
    for ended in run(FORK, 2, PYTHONWARNINGS="ignore"):
        quiet(ended)


def test_a_pool_of_forked_workers_may_ask_for_the_rank() -> None:
    script = """
    import multiprocessing
    import numpy as np, syrtos.numpy as st
    st.init()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
        assert pool.apply(st.rank) == st.rank()
    assert st.allreduce(np.ones(3), op=st.Sum).tolist() == [st.size()] * 3
    """
    for ended in run(script, 2, PYTHONWARNINGS="ignore"):
        quiet(ended)


def test_a_fork_before_init_is_no_obstacle() -> None:
    quiet(
        run_alone(
            """
            import os, sys
            import numpy as np, syrtos.numpy as st
            if os.fork() == 0:
                st.init()
                sys.exit(int(st.allreduce(np.ones(1))[0]) - 1)
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
            """
        )
    )


EXITS = {
    "without shutdown": ("", 0),
    "with shutdown": ("st.shutdown()", 0),
    "unawaited handle": ("handle = st.allreduce_async(np.ones(9), name='left')", 0),
    "dropped handle": ("st.allreduce_async(np.ones(9))", 0),
    "living daemon thread": (
        "threading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()",
        0,
    ),
    "daemon thread in a collective": (
        "threading.excepthook = lambda *_: None; "
        "threading.Thread(target=lambda: st.allgather([st.rank()], name=f'r{st.rank()}'), "
        "daemon=True).start(); time.sleep(0.05)",
        0,
    ),
    "sys.exit in a thread": ("threading.Thread(target=sys.exit, args=(4,)).start()", 0),
    "sys.exit with a code": ("sys.exit(3)", 3),
}


@pytest.mark.parametrize("case", EXITS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_end_of_a_script_is_quiet(case: str, ranks: int) -> None:
    ending, code = EXITS[case]
    script = f"""
    import sys, threading, time
    import numpy as np, syrtos.numpy as st
    st.init()
    assert st.allreduce(np.ones(3), op=st.Sum).tolist() == [st.size()] * 3
    {ending}
    """
    for _ in range(2):
        for ended in run(script, ranks):
            quiet(ended, code)


def test_import_alone_ends_quietly() -> None:
    quiet(run_alone("import syrtos, syrtos.numpy"))


WAITING = """
import sys, threading, time
import numpy as np, syrtos.numpy as st
st.init()
st.barrier()
if st.rank() == 0:
    try:
        st.allreduce(np.ones(3), name="waiting")
    except st.errors.SyrtosError as error:
        print(type(error).__name__, error.recoverable, error)
else:
    time.sleep(0.2)
"""


def first_cause(ending: str, code: int) -> str:
    began = time.monotonic()
    waiting, failing = run(WAITING + f"    {ending}\n", 2)
    assert time.monotonic() - began < 60  # against hanging only
    assert failing.code == code
    assert waiting.code == 0, waiting.err
    return waiting.out


def test_an_uncaught_exception_reaches_the_others_with_its_own_words() -> None:
    text = first_cause("1 / 0", 1)
    assert "PeerLostError True" in text
    assert "rank 1 (here): ZeroDivisionError: division by zero at <string>:" in text


def test_a_runner_that_catches_exceptions_can_pass_them_on() -> None:
    ending = """
    from syrtos import _session
    try:
        raise OSError("disk full")
    except OSError as error:
        _session.report_failure(error)
    time.sleep(1)
"""
    assert "rank 1 (here): OSError: disk full at <string>:" in first_cause(ending.strip(), 0)


def test_the_exception_of_a_thread_that_uses_syrtos_reaches_the_others() -> None:
    ending = """
    def work():
        st.allreduce(np.ones(1), name="rank0 never asks")
    def break_(): st.allreduce_async(np.ones(1), name="other"); raise KeyError("lost")
    thread = threading.Thread(target=break_)
    thread.start()
    thread.join()
    time.sleep(5)
"""
    text = first_cause(ending.strip(), 0)
    assert "rank 1 (here): KeyError: 'lost'" in text


def test_the_exception_of_another_thread_does_no_harm() -> None:
    script = """
    import threading
    import numpy as np, syrtos.numpy as st
    st.init()
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    assert st.allreduce(np.ones(3), op=st.Sum).tolist() == [st.size()] * 3
    """
    for ended in run(script, 2):
        assert ended.code == 0
        assert "ZeroDivisionError" in ended.err


@pytest.mark.parametrize("code", [0, 3])
def test_an_early_departure_is_told_to_those_who_wait(code: int) -> None:
    text = first_cause(f"sys.exit({code})", code)
    assert "True" in text.split()[1]
    assert "rank 1" in text
    assert "shut down" in text


def test_a_killed_rank_is_told_to_those_who_wait() -> None:
    text = first_cause("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9)
    assert "PeerLostError True" in text
    assert "rank 1" in text


def interrupted(script: str, ready: str) -> tuple[Ended, float]:
    with Job(script, 2) as job:
        first = job.processes[0]
        assert first.stdout is not None
        assert first.stdout.readline().strip() == ready
        time.sleep(0.3)
        began = time.monotonic()
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=20)
        return Ended(first.returncode, out, err), time.monotonic() - began


def test_ctrl_c_breaks_a_blocked_collective() -> None:
    ended, seconds = interrupted(
        """
        import time
        import numpy as np, syrtos.numpy as st
        st.init()
        if st.rank() == 0:
            print("waiting", flush=True)
            try:
                st.allreduce(np.ones(3), name="never")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        else:
            time.sleep(30)
        """,
        "waiting",
    )
    assert (ended.code, ended.out) == (0, "interrupted\n")
    assert seconds < 2


def test_ctrl_c_breaks_an_init_that_waits_for_others() -> None:
    ended, seconds = interrupted(
        """
        import os, time
        import syrtos
        if os.environ["SYRTOS_RANK"] == "0":
            print("waiting", flush=True)
            try:
                syrtos.init()
            except KeyboardInterrupt:
                print("interrupted", syrtos.is_initialized(), flush=True)
        else:
            time.sleep(30)
        """,
        "waiting",
    )
    assert (ended.code, ended.out) == (0, "interrupted False\n")
    assert seconds < 2


def test_init_gives_up_when_others_do_not_come() -> None:
    script = """
    import os, syrtos, time
    if os.environ["SYRTOS_RANK"] == "0":
        began = time.monotonic()
        try:
            syrtos.init(start_timeout=0.5)
        except syrtos.errors.SyrtosError as error:
            print(type(error).__name__, time.monotonic() - began < 30, error)
    """
    first, _ = run(script, 2)
    assert first.code == 0, first.err
    assert first.out.startswith("CollectiveTimeout True")
    assert "1 of 2" in first.out


def test_settings_that_must_agree_are_compared() -> None:
    script = """
    import os, syrtos
    try:
        syrtos.init(cache_capacity=10 + int(os.environ["SYRTOS_RANK"]))
    except syrtos.errors.MismatchError as error:
        print(error)
    """
    for ended in run(script, 2):
        assert ended.code == 0, ended.err
        for word in ("cache_capacity", "10", "11"):
            assert word in ended.out


def test_comm_and_process_sets_of_init() -> None:
    script = """
    import syrtos
    from syrtos import ProcessSet
    for comm in ([0], "world", object()):
        try:
            syrtos.init(comm)
        except ValueError as error:
            assert "comm=" in str(error), error
        else:
            raise SystemExit(f"{comm} went through")
        assert not syrtos.is_initialized()
    one = ProcessSet([1])
    syrtos.init([0, 1], process_sets=[one, [0]])
    assert str(one) == "ProcessSet(process_set_id=1, ranks=[1], mpi_comm=None)"
    assert syrtos.global_process_set.ranks == [0, 1]
    assert syrtos.global_process_set.size() == 2
    syrtos.shutdown()
    assert one.process_set_id is None and one.size() is None and one.included() is None
    try:
        syrtos.init(process_sets=[one, [1]])
    except ValueError as error:
        assert "exists" in str(error)
    else:
        raise SystemExit("a duplicate went through")
    syrtos.init(process_sets="dynamic")
    syrtos.add_process_set(one)
    """
    for ended in run(script, 2):
        quiet(ended)
