"""One rank of ``syrtos.run``: reads the function, runs it, leaves the result.

Run as a script: before it has read the caller's ``sys.path`` it cannot know where Syrtos is. It
inherits two files in memory: descriptor 3 holds what to run, descriptor 4 takes the outcome.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from typing import Any

CALL_FD, OUTCOME_FD = 3, 4
#: The launcher asks for all stacks by this signal.
STACKS_SIGNAL = signal.SIGUSR1
#: A rank that has failed must end although threads of it may go on, in seconds.
EXIT_PATIENCE = 3.0


def write_outcome(head: dict[str, Any], body: bytes) -> None:
    """Write the outcome; `head` tells how long `body` is, so that a torn one is noticed."""
    data = pickle.dumps({**head, "time": time.monotonic(), "length": len(body)}) + body
    view = memoryview(data)
    while view:
        view = view[os.write(OUTCOME_FD, view) :]


def without_worker(error: BaseException) -> str:
    """Return the traceback's text, beginning in the user's code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def tell_other_ranks(error: BaseException) -> None:
    """Let ranks that wait for this one raise its own words, if it has used Syrtos at all."""
    session = sys.modules.get("syrtos._session")
    if session is not None:
        with contextlib.suppress(Exception):
            session.report_failure(error)


def write_error(error: BaseException, note: str = "") -> None:
    """Write an exception, as itself if that can be pickled, and as text in any case."""
    import cloudpickle

    body = b""
    with contextlib.suppress(Exception):
        body = cloudpickle.dumps(error)
        pickle.loads(body)  # some can be written but not read
    kind = type(error)
    head = {
        "kind": "error",
        "type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "text": note or str(error),
        "traceback": without_worker(error),
        "recoverable": getattr(error, "recoverable", False) is True,
    }
    write_outcome(head, b"" if note else body)


def run_call() -> int:
    """Run the function; return the exit code."""
    try:
        with open(f"/proc/self/fd/{CALL_FD}", "rb") as file:  # noqa: PTH123
            sys.path[:], sys.argv[:] = pickle.load(file)
            function, args, kwargs = pickle.load(file)
        os.close(CALL_FD)
        value = function(*args, **kwargs)
    except SystemExit as exit_:
        write_outcome({"kind": "exit"}, b"")
        raise exit_
    except BaseException as error:
        tell_other_ranks(error)
        write_error(error)
        return 1
    import cloudpickle

    try:
        body = cloudpickle.dumps(value)
    except Exception as error:
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        write_error(error, f"the result, of type {name}, cannot be pickled: {error}")
        return 1
    del value
    write_outcome({"kind": "value"}, body)
    return 0


def main() -> None:
    """Run as a rank."""
    for fd in (CALL_FD, OUTCOME_FD):
        os.set_inheritable(fd, False)
    with contextlib.suppress(ValueError, OSError, RuntimeError):  # stderr may be closed
        faulthandler.enable()
        faulthandler.register(STACKS_SIGNAL, all_threads=True)
    code = run_call()
    if code:
        timer = threading.Timer(EXIT_PATIENCE, os._exit, (code,))
        timer.daemon = True
        timer.start()
    sys.exit(code)


if __name__ == "__main__":
    main()
