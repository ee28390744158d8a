"""What a job decides, seen by a starter that starts nothing."""

from __future__ import annotations

import os
import signal
import time

import pytest

from syrtos.launcher import job as job_module
from syrtos.launcher.job import AFTER_END, AFTER_FAILURE, AT_ONCE, Job, JobOptions
from syrtos.launcher.sink import Target
from syrtos.launcher.starter import RankCommand, Starter


class Scripted(Starter):
    """Plays back reports, one a round of the loop, and notes what it is asked to do."""

    def __init__(self, loop, listener, script):
        self.loop, self.listener, self.script = loop, listener, list(script)
        self.asked = []

    def start(self, commands):
        for command in commands:
            self.listener.on_started(command.rank, 1000 + command.rank)
        self.loop.call_later(0, self._play)

    def _play(self):
        if self.script:
            name, *arguments = self.script.pop(0)
            getattr(self.listener, name)(*arguments)
            self.loop.call_later(0, self._play)
        else:
            self.listener.on_gone(None)

    def send_signal(self, number, ranks=None, *, whole_group=True):
        self.asked.append(("signal", number, whole_group))

    def stop(self, term_after, kill_after):
        self.asked.append(("stop", term_after, kill_after))

    def pause_output(self, stream, paused):
        self.asked.append(("pause", stream, paused))

    def close(self):
        self.asked.append(("close",))


def play(script, size=2, during=None, **options):
    """Return the job's result, what the starter was asked to do, and what was printed."""
    fds = [os.memfd_create("out") for _ in range(2)]
    starters = []

    def make(loop, listener):
        starters.append(Scripted(loop, listener, script))
        return starters[0]

    commands = [RankCommand(rank, "here", ("program",)) for rank in range(size)]
    job = Job(commands, make, tuple(Target(fd) for fd in fds), JobOptions(**options))
    if during is not None:
        job.loop.call_later(0, lambda: during(job))
    result = job.run()
    out, err = (os.pread(fd, 1 << 16, 0).decode() for fd in fds)
    for fd in fds:
        os.close(fd)
    return result, starters[0].asked, out + err


def exited(rank, code):
    return ("on_exited", rank, code, time.monotonic())


END, CLOSE = ("stop", *AFTER_END), ("close",)


def test_a_job_that_ends_well_is_swept_and_closed():
    result, asked, text = play([exited(0, 0), exited(1, 0)])
    assert result.exit_code == 0
    assert asked == [END, CLOSE]
    assert text == ""


def test_the_first_failure_gives_the_others_their_grace():
    result, asked, text = play([exited(1, 3), exited(0, -signal.SIGTERM)])
    assert result.exit_code == 3
    assert asked == [("stop", *AFTER_FAILURE), END, CLOSE]
    assert text == (
        "syrtosrun: rank 1 on here (pid 1001) exited with code 3; stopping the other ranks\n"
    )


def test_continue_waits_for_all():
    script = [exited(1, 3), exited(0, 4)]
    result, asked, _ = play(script, abort_on_failure=False)
    assert result.exit_code == 3
    assert asked == [END, CLOSE]


@pytest.mark.parametrize("error", ["syrtos.errors.PeerLostError: x", "syrtos.ShutdownError: y"])
def test_a_consequence_is_not_the_cause(error):
    words = ("on_output", 0, "stderr", f"Traceback\n{error}\n".encode())
    result, _, text = play([words, exited(0, 1), exited(1, 7)])
    assert result.exit_code == 7
    assert "first failure: rank 1" in text
    assert "also failed (because of another rank): rank 0" in text


def test_a_rank_that_ends_badly_after_sigterm_was_only_stopped(monkeypatch):
    monkeypatch.setattr(job_module, "AFTER_FAILURE", (0.0, 1.0))
    script = [exited(1, 3), ("on_exited", 0, 1, time.monotonic() + 60)]
    result, _, text = play(script)
    assert result.exit_code == 3
    assert "also failed" not in text


def test_a_program_that_cannot_start_ends_the_job_at_once():
    result, asked, text = play([("on_start_failed", 0, "Exec format error"), exited(1, -9)])
    assert result.exit_code == 127
    assert ("stop", *AT_ONCE) in asked
    assert "rank 0 on here could not be started: program: Exec format error" in text


def test_a_signal_is_passed_on_and_wins_over_failures():
    script = [exited(0, -signal.SIGTERM), exited(1, 5)]
    result, asked, text = play(script, during=lambda job: job.on_signal(signal.SIGTERM))
    assert result.exit_code == 128 + signal.SIGTERM
    assert asked[:2] == [("signal", signal.SIGTERM, True), ("stop", *AFTER_FAILURE)]
    assert text == ""


def test_stacks_are_asked_for_once_and_only_of_the_ranks_themselves():
    answers = []

    def expire(job):
        answers.append(job.dump_stacks_and_kill(signal.SIGUSR1))
        answers.append(job.dump_stacks_and_kill(signal.SIGUSR1))

    stacks = [("on_output", rank, "stderr", b"stack of %d\n" % rank) for rank in range(2)]
    script = [*stacks, exited(0, -9), exited(1, -9)]
    result, asked, _ = play(script, during=expire)
    assert answers == [True, False]
    assert asked.count(("signal", signal.SIGUSR1, False)) == 1
    assert bytes(result.ranks[1].streams["stderr"].captured) == b"stack of 1\n"


def test_an_error_in_the_launcher_still_closes_the_starter():
    def fail(job):
        raise ZeroDivisionError

    fds = [os.memfd_create("out") for _ in range(2)]
    starters = []

    def make(loop, listener):
        starters.append(Scripted(loop, listener, [exited(0, 0)]))
        return starters[0]

    job = Job(
        [RankCommand(0, "here", ("program",))],
        make,
        tuple(Target(fd) for fd in fds),
        JobOptions(),
    )
    job.loop.call_later(0, lambda: fail(job))
    with pytest.raises(ZeroDivisionError):
        job.run()
    assert starters[0].asked[-1] == CLOSE
