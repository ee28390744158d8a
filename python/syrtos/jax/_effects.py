"""The order of the collectives of this process, inside compiled programs and between them.

Ranks match collectives in compiled programs by their order, so that order must be the one of the
program's text, and a collective must neither be dropped if its result is unused nor be merged with
an equal one. In JAX this is what an ordered effect is for: each collective takes a token of the one
before and hands one on, also through loops, branches and from one program to the next.

JAX has no public way to add an effect; all that is used of its private modules is in this file.
"""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax

from syrtos.jax import _library

try:
    from jax._src import core, dispatch, effects
    from jax._src.dispatch import RuntimeTokenSet

    _ORIGINAL = RuntimeTokenSet.get_token_input
    _ALLOWED = (
        effects.ordered_effects,
        effects.lowerable_effects,
        effects.control_flow_allowed_effects,
        effects.custom_derivatives_allowed_effects,
        effects.remat_allowed_effects,
    )
except (ImportError, AttributeError) as error:
    raise ImportError(
        f"syrtos.jax: JAX {jax.__version__} has changed what an effect is ({error}): install JAX "
        "0.10, or a newer Syrtos."
    ) from error

_library.load()

__all__ = ["EFFECT", "after_programs", "is_staged", "token_aval", "wait_for_programs"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Collectives(effects.Effect):  # type: ignore[misc]
    """What a collective does besides computing its result: it takes part among the ranks."""

    def __str__(self) -> str:
        return "syrtos"


for _allowed in _ALLOWED:
    _allowed.add_type(_Collectives)
EFFECT = _Collectives()
#: Not empty once a program has failed in this process.
_failed: list[bool] = []

#: The type of the token that goes in and out of a collective.
token_aval = core.abstract_token


class _Seen(threading.local):
    """How many failures this thread, whose tokens are its own, knows of."""

    failures = 0


_seen = _Seen()


def _has_failed(token: Any) -> bool:
    """Whether a token is that of a program that failed; waits only if a collective did fail."""
    failures = _library.failures()
    if failures == _seen.failures and not token._buf.is_ready():
        return False
    _seen.failures = failures
    try:
        token.block_until_ready()
    except Exception:
        return True
    return False


def _get_token_input(self: Any, effect: Any, devices: Any) -> Any:
    # A program that has failed leaves a failed token, and with it every later program would fail
    # too, with the same error. Its error has been raised, or will be, where its results are used.
    token = self.current_tokens.get(effect) if effect is EFFECT else None
    if token is None:
        return _ORIGINAL(self, effect, devices)
    if _has_failed(token):
        _failed[:] = [True]
        del self.current_tokens[effect]
    elif len(devices) == 1 and token._buf.devices() == {devices[0]}:
        return token  # it is there already; the original would take long to find out
    return _ORIGINAL(self, effect, devices)


RuntimeTokenSet.get_token_input = _get_token_input


def wait_for_programs() -> None:
    """Wait until the programs that this thread has started are done with their collectives.

    JAX starts programs without waiting for them, so a call outside of them could overtake theirs on
    one rank and not on another. Their errors are raised where their results are used.
    """
    tokens = dispatch.runtime_tokens.current_tokens
    token = tokens.get(EFFECT)
    if token is None:
        return
    try:
        token.block_until_ready()
    except Exception:
        _failed[:] = [True]
        tokens.pop(EFFECT, None)


@atexit.register
def _leave_no_failure() -> None:
    """Keep JAX from complaining, at its own exit, of collectives that failed.

    Runs after the engine has been closed, so nothing is left to wait for.
    """
    wait_for_programs()
    if not _failed:
        return
    tokens = dispatch.runtime_tokens.output_runtime_tokens
    for device, token in list(tokens.items()):
        try:
            token.block_until_ready()
        except Exception:
            del tokens[device]


def after_programs(function: _Function) -> _Function:
    """Make a function wait for the programs that were started before (a decorator)."""

    @functools.wraps(function)
    def waiting(*arguments: Any, **options: Any) -> Any:
        wait_for_programs()
        return function(*arguments, **options)

    return cast(_Function, waiting)


def is_staged() -> bool:
    """Whether what is called now becomes part of a program instead of being done at once."""
    if core.trace_state_clean():
        return False
    # Inside jit, loops and the like even constants are traced; under grad and vmap alone not.
    return isinstance(jax.numpy.zeros(()), jax.core.Tracer)
