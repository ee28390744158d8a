"""States, restarts and the sampler of elastic training, in a world that stays as it is."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from ranks import run_ranks

import syrtos
from syrtos import elastic
from syrtos.elastic import HostsUpdatedInterrupt, HostUpdateResult, ObjectState, run_fn
from syrtos.errors import HorovodInternalError, InvalidRequestError, MismatchError, PeerLostError


def alone(**objects: Any) -> ObjectState:
    """Return a state of a world of one, without an engine."""
    return ObjectState(lambda obj: obj, lambda: 0, **objects)


# ---- ObjectState ----


def test_restore_undoes_all_since_the_last_commit_also_inside_of_objects():
    state = alone(step=0, history=[])
    state.step = 1
    state.history.append("a")
    state.commit()
    for _ in range(2):  # the second time what the first one restored has been changed
        state.step = 7
        state.history.append("b")
        state.restore()
        assert (state.step, state.history) == (1, ["a"])


def test_a_state_keeps_the_very_objects_that_it_is_given():
    history: list[str] = []
    state = alone(history=history)
    assert state.history is history
    state.commit()
    state.sync()
    assert state.history is history


def test_sync_takes_current_values_and_saves_them():
    state = ObjectState(lambda obj: {**obj, "step": 5}, lambda: 1, step=0, epoch=2)
    state.epoch = 3
    state.sync()
    assert (state.step, state.epoch) == (5, 3)
    state.step = state.epoch = 0
    state.restore()
    assert (state.step, state.epoch) == (5, 3)


@pytest.mark.parametrize("name", ["commit", "sync", "restore", "on_reset"])
def test_an_object_cannot_be_called_like_a_method(name):
    with pytest.raises(InvalidRequestError, match=rf"ObjectState\({name}=\.\.\.\)"):
        alone(**{name: 1})


def test_what_cannot_be_copied_is_refused_by_name():
    with pytest.raises(InvalidRequestError, match=r"lock=\.\.\.\).*type lock cannot be copied"):
        alone(lock=threading.Lock())


# ---- changes of the hosts ----


@pytest.mark.parametrize(
    ("messages", "skip_sync"),
    [
        ([(1, HostUpdateResult.removed)], True),
        ([(1, HostUpdateResult.added)], False),
        ([(1, HostUpdateResult.removed), (1, HostUpdateResult.added)], False),
        ([(2, HostUpdateResult.removed), (1, HostUpdateResult.mixed)], False),
    ],
)
def test_a_change_of_hosts_interrupts_the_next_commit_once(messages, skip_sync):
    state = alone(step=0)
    state.step = 4
    for timestamp, result in messages:
        state.on_hosts_updated(timestamp, result)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is skip_sync
    state.commit()
    state.on_hosts_updated(1, HostUpdateResult.added)  # known already
    state.commit()
    state.step = 9
    state.restore()
    assert state.step == 4


def test_a_reset_forgets_changes_and_calls_reset_then_the_callbacks():
    calls: list[str] = []

    class Mine(ObjectState):
        def reset(self) -> None:
            calls.append("reset")

    state = Mine(lambda obj: obj, lambda: 0)
    state.register_reset_callbacks([lambda: calls.append("first"), lambda: calls.append("second")])
    state.on_hosts_updated(1, HostUpdateResult.added)
    state.on_reset()
    assert calls == ["reset", "first", "second"]
    state.check_host_updates()


def test_the_manager_tells_the_states_in_use():
    manager = elastic.WorkerNotificationManager()
    manager.init(rendezvous_addr="ignored")
    state, other = alone(), alone()
    manager.register_listener(state)
    manager.register_listener(other)
    manager.remove_listener(other)
    manager.handle_hosts_updated(1, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    other.commit()
    with pytest.raises(ValueError, match="not registered"):
        manager.remove_listener(other)


# ---- run_fn ----


class Script:
    """A training function that meets the given exceptions, one a start."""

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors = list(errors)
        self.seen: list[int] = []
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def __call__(self, state: ObjectState, bonus: int) -> int:
        self.seen.append(state.step)
        state.step += 1
        error = self.errors.pop(0)
        if error is not None:
            raise error
        return state.step + bonus


def run_script(script: Script, state: ObjectState) -> int:
    def train(state: ObjectState, bonus: int) -> int:
        return script(state, bonus)

    return run_fn(train, script.reset)(state, bonus=100)


def test_a_lost_peer_restores_and_starts_again():
    script = Script(PeerLostError("rank 1 is gone"), HorovodInternalError("by hand"), None)
    assert run_script(script, alone(step=3)) == 104
    assert (script.seen, script.resets) == ([3, 3, 3], 2)


def test_changed_hosts_keep_the_state():
    script = Script(HostsUpdatedInterrupt(True), HostsUpdatedInterrupt(False), None)
    assert run_script(script, alone(step=3)) == 106
    assert (script.seen, script.resets) == ([3, 4, 5], 2)


def test_only_a_mere_removal_skips_the_synchronisation():
    synced: list[int] = []

    class Mine(ObjectState):
        def sync(self) -> None:
            synced.append(self.step)

    state = Mine(lambda obj: obj, lambda: 0, step=0)
    errors = [HostsUpdatedInterrupt(True), PeerLostError(""), HostsUpdatedInterrupt(False), None]
    run_script(Script(*errors), state)
    assert synced == [0, 0, 1]  # at the start, after the loss (restored), after the addition


@pytest.mark.parametrize("error", [MismatchError("shapes"), ZeroDivisionError("mine")])
def test_what_no_new_start_can_mend_goes_to_the_caller(error):
    script = Script(error)
    with pytest.raises(type(error), match=str(error)):
        run_script(script, alone(step=0))
    assert script.resets == 0


def test_ten_failures_without_a_commit_are_enough(caplog):
    script = Script(*[PeerLostError(f"number {i}") for i in range(1, 12)])
    with pytest.raises(PeerLostError, match="number 10"):
        run_script(script, alone(step=0))
    assert script.resets == 9
    assert "given up" in caplog.text


def test_a_commit_shows_that_there_is_progress():
    starts = 0

    def train(state: ObjectState) -> str:
        nonlocal starts
        starts += 1
        if starts == 25:
            return "done"
        state.commit()
        raise PeerLostError("again")

    assert run_fn(train, lambda: None)(alone()) == "done"


def test_a_state_hears_of_hosts_only_while_it_runs():
    state = alone()

    def train(state: ObjectState) -> None:
        elastic.notification_manager.handle_hosts_updated(1, HostUpdateResult.added)
        state.commit()

    calls: list[int] = []

    def reset() -> None:
        calls.append(1)
        raise RuntimeError("the end of this test")

    with pytest.raises(RuntimeError, match="the end of this test"):
        run_fn(train, reset)(state)
    elastic.notification_manager.handle_hosts_updated(2, HostUpdateResult.added)
    state.commit()
    assert calls == [1]


def test_the_new_engine_has_the_settings_of_the_old_one():
    from syrtos import _session

    syrtos.init(stall_warning=7.5)
    try:
        before = _session.current()

        @elastic.run
        def train(state: ObjectState) -> float:
            if _session.current() is before:
                raise PeerLostError("once")
            return _session.current().settings.stall_warning

        assert train(ObjectState(step=0)) == 7.5
    finally:
        syrtos.shutdown()


# ---- two ranks ----


def two_ranks() -> dict[str, Any]:
    """Rank 1 fails once, in the middle of the third step; returns what each rank saw."""
    import numpy as np

    import syrtos.numpy as st

    st.init()
    rank = st.rank()
    seen: dict[str, Any] = {"starts": [], "sizes": []}

    @elastic.run
    def train(state: ObjectState) -> float:
        seen["starts"].append(state.step)
        while state.step < 5:
            if rank == 1 and state.step == 3 and len(seen["starts"]) == 1:
                state.total = -1.0
                raise HorovodInternalError("planted")
            state.total += float(st.allreduce(np.float64(rank + state.step), op=st.Sum))
            state.step += 1
            if state.step == 2:
                state.commit()
        return state.total

    state = ObjectState(step=0 if rank == 0 else 77, total=0.0)
    state.register_reset_callbacks([lambda: seen["sizes"].append(st.size())])
    seen["total"] = train(state)

    if rank == 0:
        state.on_hosts_updated(1, HostUpdateResult.added)
    try:
        state.commit()
    except HostsUpdatedInterrupt as interrupt:
        seen["interrupted"] = interrupt.skip_sync
    return seen


def test_both_ranks_go_back_to_the_commit_when_one_fails():
    total = float(sum(0 + 1 + 2 * step for step in range(5)))
    expected = {"starts": [0, 2], "sizes": [2], "total": total, "interrupted": False}
    assert run_ranks(two_ranks, 2, timeout=60) == [expected, expected]
