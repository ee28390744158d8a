"""How the launcher passes on what the ranks write."""

from __future__ import annotations

import errno
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syrtos.launcher.output import Console, OutputOptions, RankFile, RankStream
from syrtos.launcher.sink import Sink, Target, write_all

PYTHON = sys.executable

# ---- the pieces, without processes ----


class Screen:
    """A console over two files, and streams of ranks on it."""

    def __init__(self, **options):
        self._fds = [os.memfd_create("screen") for _ in range(2)]
        self.console = Console(*(Target(fd) for fd in self._fds), lambda: None)
        self._options = OutputOptions(**options)

    def stream(self, rank, name="stdout"):
        return RankStream(self.console, rank, name, self._options, None)

    def read(self):
        self.console.close(5.0)
        found = []
        for fd in self._fds:
            found.append(os.pread(fd, 1 << 24, 0))
            os.close(fd)
        return found


def shown(*pieces, ranks=1, end=True, **options):
    """Return stdout after feeding (rank, bytes) pieces; None instead of bytes flushes."""
    screen = Screen(**options)
    streams = [screen.stream(rank) for rank in range(ranks)]
    for rank, data in pieces:
        if data is None:
            streams[rank].flush()
        else:
            streams[rank].feed(data)
    for stream in streams if end else ():
        stream.feed(b"")
    return screen.read()[0]


def test_each_line_has_its_prefix():
    assert shown((0, b"a\nb\n\nc\n")) == (
        b"[0]<stdout>:a\n[0]<stdout>:b\n[0]<stdout>:\n[0]<stdout>:c\n"
    )


def test_parts_of_a_line_are_joined():
    assert shown((0, b"a"), (0, b"b\nc"), (0, b"\n")) == b"[0]<stdout>:ab\n[0]<stdout>:c\n"


def test_an_incomplete_line_waits_for_its_end():
    pieces = [(0, b"zero "), (1, b"one "), (0, b"is 0\n"), (1, b"is 1\n")]
    assert shown(*pieces, ranks=2) == b"[0]<stdout>:zero is 0\n[1]<stdout>:one is 1\n"


def test_a_last_line_without_end_appears_once():
    assert shown((0, b"a\nlast")) == b"[0]<stdout>:a\n[0]<stdout>:last\n"
    assert shown((0, b"last"), (0, None)) == b"[0]<stdout>:last\n"


def test_a_line_shown_after_a_pause_goes_on():
    pieces = [(0, b"loading"), (0, None), (0, b"..."), (0, None), (0, b"done\nnext\n")]
    assert shown(*pieces) == b"[0]<stdout>:loading...done\n[0]<stdout>:next\n"


def test_who_writes_into_an_incomplete_line_begins_a_new_one():
    pieces = [(0, b"load"), (0, None), (1, b"hi\n"), (0, b"ed\n")]
    assert shown(*pieces, ranks=2) == b"[0]<stdout>:load\n[1]<stdout>:hi\n[0]<stdout>:ed\n"


def test_a_progress_bar_is_shown_at_once_and_keeps_its_prefix():
    assert shown((0, b"\r 10%"), (0, b"\r 20%"), end=False) == (
        b"[0]<stdout>: 10%\r[0]<stdout>: 20%\n"
    )
    assert shown((0, b"10%\r"), (0, b"20%\r"), (0, b"done\n")) == (
        b"[0]<stdout>:10%\r[0]<stdout>:20%\r[0]<stdout>:done\n"
    )


def test_two_progress_bars_do_not_mix():
    pieces = [(0, b"\r10%"), (1, b"\r11%"), (0, b"\r20%"), (1, None), (1, b"\r22%\n")]
    assert shown(*pieces, ranks=2) == (
        b"[0]<stdout>:10%\r[0]<stdout>:20%\n[1]<stdout>:11%\r[1]<stdout>:22%\n"
    )


def test_line_ends_of_two_bytes_survive():
    assert shown((0, b"a\r"), (0, b"\nb\r\n")) == b"[0]<stdout>:a\r\n[0]<stdout>:b\r\n"


def test_a_very_long_line_is_shown_in_pieces():
    assert shown((0, b"x" * 70_000), (0, b"y" * 70_000), end=False) == (
        b"[0]<stdout>:" + b"x" * 70_000 + b"y" * 70_000 + b"\n"
    )


def test_any_byte_survives():
    data = bytes(value for value in range(256) if value not in b"\r\n")
    assert shown((0, data + b"\n")) == b"[0]<stdout>:" + data + b"\n"


def test_without_prefix_bytes_are_as_they_were():
    assert shown((0, b"a\nb\r\nc"), prefix=False) == b"a\nb\r\nc\n"


def test_a_timestamp_comes_before_the_prefix():
    day = rb"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} "
    assert re.fullmatch(
        day + rb"\[0\]<stdout>:a\n" + day + rb"\[0\]<stdout>:b\n",
        shown((0, b"a\nb\n"), timestamp=True),
    )


def test_the_tail_keeps_the_last_lines_only():
    screen = Screen()
    stream = screen.stream(0, "stderr")
    for number in range(10_000):
        stream.feed(b"line %d\n" % number)
    assert stream.tail[-1] == "line 9999"
    assert 100 < len(stream.tail) < 1000
    screen.read()


def test_a_slow_reader_never_blocks_the_writer():
    read, write = os.pipe()
    changes = []
    sink = Sink(Target(write), lambda: changes.append(1))
    begin = time.monotonic()
    for _ in range(40):
        sink.write(b"x" * 65536)
    assert time.monotonic() - begin < 60  # against hanging only
    assert sink.is_full
    left = 40 * 65536
    while left:
        left -= len(os.read(read, left))
    sink.close(5.0)
    assert not sink.is_full
    assert changes == [1]
    os.close(read)
    os.close(write)


def test_a_reader_that_has_left_is_noticed():
    read, write = os.pipe()
    os.close(read)
    sink = Sink(Target(write), lambda: None)
    sink.write(b"x")
    sink.close(5.0)
    assert sink.reader_left
    os.close(write)


def test_a_full_disk_is_told_once_and_then_ignored():
    warnings = []
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    file = RankFile(Path("/dev/full"), warnings.append)
    for _ in range(3):
        file.write(b"x")
    file.write(b"")
    assert len(warnings) == 1
    assert os.strerror(errno.ENOSPC) in warnings[0]


def test_a_descriptor_that_does_not_block_takes_all():
    read, write = os.pipe()
    os.set_blocking(write, False)
    sink = Sink(Target(write), lambda: None)
    sink.write(b"x" * 1_000_000)
    left = 1_000_000
    while left:
        left -= len(os.read(read, 65536))
    sink.close(5.0)
    write_all(write, b"")
    os.close(write)
    os.close(read)


# ---- whole jobs ----

WITHOUT_END = "printf 'a\\nlast'; printf err-last >&2; exit "


@pytest.mark.parametrize("code", [0, 3])
def test_a_jobs_last_lines_appear_once(syrtosrun, tmp_path, code):
    done = syrtosrun(
        *("-np", "2", "--output-filename", str(tmp_path / "logs")),
        *("sh", "-c", WITHOUT_END + str(code)),
    )
    assert done.returncode == code
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}]<stdout>:{text}" for rank in range(2) for text in ("a", "last")
    ]
    for rank in range(2):
        assert done.stderr.count(f"[{rank}]<stderr>:err-last\n") == 1
        folder = tmp_path / "logs" / f"rank.{rank}"
        assert (folder / "stdout").read_bytes() == b"a\nlast"
        assert (folder / "stderr").read_bytes() == b"err-last"
    assert done.stderr.count("err-last") == 2


def test_folders_of_ranks_are_padded(syrtosrun, tmp_path):
    done = syrtosrun("-np", "11", "--output-filename", str(tmp_path), "true")
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"rank.{n:02}" for n in range(11)]


def test_an_unwritable_folder_is_told_once_and_the_job_goes_on(syrtosrun, tmp_path):
    (tmp_path / "file").write_text("")
    done = syrtosrun("-np", "2", "--output-filename", str(tmp_path / "file"), "echo", "hi")
    assert done.returncode == 0
    assert done.stdout.count(":hi") == 2
    assert done.stderr.count("cannot write") == 1
    assert str(tmp_path / "file" / "rank.0") in done.stderr


def test_a_full_disk_under_stdout_does_not_end_the_job(syrtosrun, tmp_path):
    marker = tmp_path / "end"
    script = f"for i in 1 2 3; do echo hi; sleep 0.1; done; touch {marker}"
    with Path("/dev/full").open("wb") as full:
        done = syrtosrun("-np", "1", "sh", "-c", script, stdout=full)
    assert done.returncode == 0
    assert marker.exists()
    assert done.stderr.count("cannot write to stdout: No space left on device") == 1


def test_the_output_of_grandchildren_is_shown(syrtosrun):
    done = syrtosrun("-np", "1", "sh", "-c", "(sleep 0.2; echo late) & echo early")
    assert done.stdout == "[0]<stdout>:early\n[0]<stdout>:late\n"


def test_a_reader_that_leaves_ends_the_job_quietly():
    script = f"'{PYTHON}' -m syrtos.launcher -np 2 yes | head -1; echo ${{PIPESTATUS[0]}}"
    begin = time.monotonic()
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert time.monotonic() - begin < 60  # against hanging only
    assert re.fullmatch(r"\[[01]\]<stdout>:y\n141\n", done.stdout)
    assert [line for line in done.stderr.splitlines() if "OMP_NUM_THREADS" not in line] == []


def test_a_reader_that_pauses_does_not_delay_the_end_of_a_failed_job(syrtosrun):
    """As in a pager: the pipe is full, and still the failure is noticed and ends the others."""
    script = "[ $SYRTOS_RANK = 0 ] && exec yes; sleep 0.5; exit 7"
    process = syrtosrun.start("-np", "2", "sh", "-c", script)
    err = b""
    while b"exited with code 7" not in err:
        err += os.read(process.stderr.fileno(), 4096)
    give_up = time.monotonic() + 5.0
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while children.read_text() and time.monotonic() < give_up:
        time.sleep(0.05)
    assert children.read_text() == ""
    assert process.poll() is None  # it still has output for its reader
    process.communicate(timeout=10)
    assert process.returncode == 7


def memory_peak(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def test_memory_does_not_grow_with_the_output(syrtosrun):
    code = (
        "import sys\nblock = (b'x' * 99 + b'\\n') * 10000\n"
        "for _ in range(100): sys.stdout.buffer.write(block)"
    )
    process = syrtosrun.start("-np", "2", PYTHON, "-c", code, stderr=subprocess.DEVNULL)
    size, early = 0, 0
    while data := os.read(process.stdout.fileno(), 1 << 20):
        size += len(data)
        peak = memory_peak(process.pid)
        early = early or (peak if size > 20 << 20 else 0)
        if size < 8 << 20:
            time.sleep(0.01)  # a reader that is slower than the ranks
    assert process.wait(timeout=10) == 0
    process.stdout.close()
    assert size == 2 * 1_000_000 * (100 + len("[0]<stdout>:"))
    assert peak < early + (4 << 20)
    assert peak < 64 << 20


# ---- terminals ----


def on_terminal(*arguments, send=b"", until=b"", timeout=20.0):
    """Run the launcher on a terminal; return exit code and what the terminal showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.pop("NO_COLOR", None)
        os.environ["TERM"] = "xterm"
        os.execv(PYTHON, [PYTHON, "-m", "syrtos.launcher", *arguments])
    shown_bytes, give_up = b"", time.monotonic() + timeout
    while time.monotonic() < give_up:
        if send and re.search(until, shown_bytes):
            os.write(terminal, send)
            send = b""
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown_bytes += os.read(terminal, 4096)
            except OSError:
                break  # the other side is closed
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown_bytes


def test_ranks_have_colours_on_a_terminal_only(syrtosrun):
    code, screen = on_terminal("-np", "2", "echo", "hi")
    assert code == 0
    assert b"\x1b[36m[0]<stdout>:\x1b[0mhi\r\n" in screen
    assert b"\x1b[33m[1]<stdout>:\x1b[0mhi\r\n" in screen
    assert "\x1b" not in syrtosrun("-np", "1", "echo", "hi").stdout


def test_a_prompt_without_line_end_is_visible_on_a_terminal():
    code, screen = on_terminal(
        *("-np", "1", "sh", "-c", "printf waiting; sleep 30"), send=b"\x03", until=rb"waiting"
    )
    assert code == 130


def test_ctrl_c_on_a_terminal_interrupts_the_ranks_once():
    program = (
        "import time\ntry:\n    print('up')\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n    time.sleep(0.3)\n"
        "    print('cleaned')\n"
    )
    begin = time.monotonic()
    code, screen = on_terminal(
        *("-np", "2", PYTHON, "-c", program), send=b"\x03", until=rb"(?s)up.*up"
    )
    assert code == 130
    assert screen.count(b"cleaned") == screen.count(b"interrupted") == 2
    assert b"Traceback" not in screen
    assert time.monotonic() - begin < 60  # against hanging only
