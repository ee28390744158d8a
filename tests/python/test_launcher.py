"""``syrtosrun`` from its start to its exit code."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

import syrtos

PYTHON = sys.executable


@pytest.mark.parametrize(
    "line",
    [
        "-np 4 -H localhost:2 true",
        "-np 2 -H localhost true",
        "-np 2 -H localhost:1 otherhost:1 python x.py",
        "-np 0 true",
        "-np two true",
        "-np 2",
        "-np 2 no-such-program",
        "-np 1 -H elsewhere:1 true",
    ],
)
def test_a_wrong_command_line_ends_at_once_with_one_line(syrtosrun, line):
    done = syrtosrun(*line.split(), timeout=5)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("syrtosrun: ")
    assert done.stderr.count("\n") == 1


def test_the_version_is_printed(syrtosrun):
    done = syrtosrun("--version")
    assert (done.returncode, done.stdout) == (0, f"syrtosrun {syrtos.__version__}\n")


def test_help_names_every_option(syrtosrun):
    done = syrtosrun("--help")
    assert done.returncode == 0
    for option in ("-np", "--hosts", "--on-failure", "--output-filename", "--timeline-filename"):
        assert option in done.stdout


def test_a_dry_run_starts_nothing(syrtosrun, tmp_path):
    file = tmp_path / "made"
    done = syrtosrun(
        *("-np", "3", "-H", "localhost:2,127.0.0.1:1", "--dry-run", "--log-level", "info"),
        *("--verbose", "touch", str(file)),
    )
    assert done.returncode == 0
    assert not file.exists()
    lines = done.stdout.splitlines()
    assert lines[0] == f"rank 0 on localhost (local 0/2, cross 0/2): touch {file}"
    assert lines[4] == f"rank 2 on 127.0.0.1 (local 0/1, cross 1/2): touch {file}"
    assert "SYRTOS_LOG_LEVEL=info" in lines[1]


def ranks_environment(syrtosrun, *arguments, **options):
    code = "import os; print(dict(os.environ))"
    done = syrtosrun(*arguments, "--no-prefix", PYTHON, "-c", code, **options)
    assert done.returncode == 0, done.stderr
    found = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    return sorted(found, key=lambda e: int(e["SYRTOS_RANK"])), done.stderr


def test_ranks_are_told_who_they_are(syrtosrun):
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    found, err = ranks_environment(
        syrtosrun, "-np", "3", "-H", "localhost:2,127.0.0.1:1", env=environment
    )
    expected = [(0, 2, 0, 2), (1, 2, 0, 1), (0, 1, 1, 2)]
    for rank, (one, numbers) in enumerate(zip(found, expected, strict=True)):
        for prefix in ("SYRTOS_", "HOROVOD_"):
            names = ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
            assert tuple(int(one[prefix + name]) for name in names) == numbers
            assert (one[prefix + "RANK"], one[prefix + "SIZE"]) == (str(rank), "3")
        assert one["PYTHONUNBUFFERED"] == "1"
        host, _, port = one["SYRTOS_STORE"].partition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
    assert [one["SYRTOS_HOST"] for one in found] == ["localhost", "localhost", "127.0.0.1"]
    assert len({one["SYRTOS_JOB_ID"] for one in found}) == 1
    assert len(found[0]["SYRTOS_JOB_ID"]) == 32
    threads = str(max(1, len(os.sched_getaffinity(0)) // 3))
    assert {one["OMP_NUM_THREADS"] for one in found} == {threads}
    assert err.count("OMP_NUM_THREADS=") == 1


def test_a_users_thread_count_is_kept(syrtosrun):
    environment = {**os.environ, "OMP_NUM_THREADS": "7"}
    found, err = ranks_environment(syrtosrun, "-np", "2", env=environment)
    assert {one["OMP_NUM_THREADS"] for one in found} == {"7"}
    assert "OMP" not in err


def test_exported_functions_and_spaces_in_the_environment_survive():
    script = (
        "f() { echo hi; }; export -f f; export A='x y'; export B='\"$(exit 9)\\'; "
        f"'{PYTHON}' -m syrtos.launcher -np 2 '{PYTHON}' -c "
        '\'import os; print(os.environ["A"], os.environ["B"])\' && '
        f"'{PYTHON}' -m syrtos.launcher -np 2 bash -c f"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [
        "[0]<stdout>:hi",
        '[0]<stdout>:x y "$(exit 9)\\',
        "[1]<stdout>:hi",
        '[1]<stdout>:x y "$(exit 9)\\',
    ]
    assert [line for line in done.stderr.splitlines() if "OMP_NUM_THREADS" not in line] == []


def test_bytes_that_are_no_text_survive(syrtosrun):
    code = "import os, sys; print(os.environb[b'X\\xfe'], os.fsencode(sys.argv[1]))"
    done = syrtosrun(
        *("-np", "1", PYTHON, "-c", code, b"\xff'\n"), env={**os.environb, b"X\xfe": b"\xfd\n"}
    )
    assert done.stdout == "[0]<stdout>:b'\\xfd\\n' b\"\\xff'\\n\"\n"


def test_ranks_use_the_launchers_interpreter_paths_and_folder(tmp_path):
    """From an activated venv, started by its full path out of another folder."""
    home = tmp_path / "my venv"
    venv.create(home, symlinks=True, with_pip=False)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "us.pth").write_text(f"{Path(syrtos.__file__).parent.parent}\n")
    script = home / "bin" / "syrtosrun"
    script.write_text(
        f"#!/bin/sh\n'''exec' '{home}/bin/python' \"$0\" \"$@\"\n' '''\n"
        "import sys\nfrom syrtos.launcher.cli import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    extra, folder = tmp_path / "a b", tmp_path / "here"
    for path in (extra, folder):
        path.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(home),
        "PYTHONPATH": str(extra),
        "NO_SITE": "1",
    }
    code = "import os, sys; print([sys.executable, sys.prefix, os.getcwd(), sys.path])"
    done = subprocess.run(
        [script, "-np", "2", "--no-prefix", "python", "-c", code],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        executable, prefix, cwd, path = ast.literal_eval(line)
        assert executable == str(home / "bin" / "python")
        assert prefix == str(home)
        assert cwd == str(folder)
        assert path[1] == str(extra)
        assert str(site) in path
    assert len(done.stdout.splitlines()) == 2


def test_a_script_with_a_missing_interpreter_is_named(syrtosrun, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = syrtosrun("-np", "2", str(script), timeout=5)
    assert done.returncode == 127
    assert f"rank 0 on localhost could not be started: {script}: No such file" in done.stderr


def test_standard_input_is_empty(syrtosrun):
    done = syrtosrun("-np", "2", "cat", stdin=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, "")


def test_ranks_have_default_signals_and_no_foreign_descriptors(syrtosrun):
    code = (
        "import os, signal; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,"
        "signal.pthread_sigmask(signal.SIG_BLOCK, []), sorted(os.listdir('/proc/self/fd'))[:-1])"
        "; print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])"
    )
    done = syrtosrun("-np", "1", PYTHON, "-c", code)
    first, second = done.stdout.splitlines()
    assert first == "[0]<stdout>:True set() ['0', '1', '2']"
    # Python itself ignores SIGPIPE and SIGXFSZ.
    assert int(second.partition(":")[2], 16) == 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1


def test_a_closed_standard_stream_does_no_harm(tmp_path):
    script = f"'{PYTHON}' -m syrtos.launcher -np 2 echo hi >&- 2>&- <&-"
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# ---- exit codes ----


def test_a_rank_that_ends_early_does_no_harm(syrtosrun):
    script = "[ $SYRTOS_RANK = 0 ] || sleep 0.5; echo done"
    done = syrtosrun("-np", "2", "sh", "-c", script)
    assert done.returncode == 0
    assert done.stdout == "[0]<stdout>:done\n[1]<stdout>:done\n"


def test_continue_leaves_the_others_alone(syrtosrun):
    script = "if [ $SYRTOS_RANK = 1 ]; then exit 5; fi; sleep 0.7; echo survived; exit 6"
    done = syrtosrun("-np", "2", "--on-failure=continue", "sh", "-c", script)
    assert done.returncode == 5
    assert "[0]<stdout>:survived" in done.stdout
    assert "rank 1 on localhost" in done.stderr
    assert "stopping" not in done.stderr


def test_the_cause_is_named_not_its_consequence(syrtosrun):
    code = (
        "import os, sys, time, syrtos.errors\n"
        "if os.environ['SYRTOS_RANK'] == '0':\n"
        "    raise syrtos.errors.PeerLostError('rank 1 is gone')\n"
        "time.sleep(0.5); sys.exit(9)"
    )
    done = syrtosrun("-np", "2", PYTHON, "-c", code)
    assert done.returncode == 9
    assert "first failure: rank 1 on localhost" in done.stderr
    assert "also failed (because of another rank): rank 0 on localhost" in done.stderr


def test_the_last_words_are_repeated_when_they_have_scrolled_away(syrtosrun):
    script = (
        "if [ $SYRTOS_RANK = 1 ]; then echo the reason >&2; exit 4; fi; "
        "sleep 0.3; for i in $(seq 30); do echo noise >&2; done"
    )
    done = syrtosrun("-np", "2", "sh", "-c", script)
    assert done.returncode == 4
    tail = done.stderr.split("the last lines of rank 1 on stderr were:\n")[1]
    assert tail == "  | the reason\n"


# ---- signals to the launcher ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_told_by_the_exit_code(syrtosrun, number):
    code = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('got it'), sys.exit(0)))\n"
        "print('up')\ntime.sleep(60)"
    )
    process = syrtosrun.start("-np", "2", PYTHON, "-c", code)
    for _ in range(2):
        assert process.stdout.readline().endswith(b"up\n")
    begin = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert time.monotonic() - begin < 60  # against hanging only
    assert process.returncode == 128 + number
    assert sorted(out.splitlines()) == [b"[0]<stdout>:got it", b"[1]<stdout>:got it"]
    assert b"Traceback" not in err


def test_a_second_signal_kills_at_once(syrtosrun):
    script = "trap '' INT TERM; echo up; sleep 60 & wait; sleep 60"
    process = syrtosrun.start("-np", "2", "sh", "-c", script)
    for _ in range(2):
        assert process.stdout.readline().endswith(b"up\n")
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert time.monotonic() - begin < 60  # against hanging only
    assert process.returncode == 130


def test_an_ignored_signal_stays_ignored(syrtosrun):
    process = syrtosrun.start(
        *("-np", "1", "sh", "-c", "echo up; sleep 0.5; echo end"),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=10)[0] == b"[0]<stdout>:end\n"
    assert process.returncode == 0
