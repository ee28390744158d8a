"""The timeline: a file that is complete at any moment, and what stands in it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import run_ranks

from syrtos.errors import InvalidRequestError, NotInitializedError
from syrtos.launcher.leftovers import processes_with

HANG = 60.0  # seconds that a loaded machine may take

ENDLESS = """
import numpy as np
import syrtos.numpy as hvd
hvd.init()
while True:
    for name in ("first", 'second "quoted"\\n'):
        assert hvd.allreduce(np.ones(10), op=hvd.Sum, name=name)[0] == hvd.size()
"""
SHORT = """
import numpy as np
import syrtos.numpy as hvd
hvd.init()
for step in range(3):
    assert hvd.allreduce(np.ones(10), op=hvd.Sum, name="x")[0] == hvd.size()
print("trained", flush=True)
"""


def wait_for(condition: Any, what: str) -> None:
    give_up = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < give_up, f"waited {HANG} s for {what}"
        time.sleep(0.05)


def load(path: Path | str) -> list[dict[str, Any]]:
    return json.loads(Path(path).read_text())


def load_cut(path: Path) -> list[dict[str, Any]]:
    """Read as docs/configuration.md says, whether or not the last event was cut off."""
    text = path.read_text(errors="replace")
    return json.loads(text.rsplit(",\n", 1)[0] + "]")


def spans(events: list[dict[str, Any]], *, all_closed: bool = True) -> dict[str, list[str]]:
    """Return what stands in each row, lane by lane, as text like ``ALLREDUCE( QUEUE( ) )``.

    Fails unless spans nest and times go forward.
    """
    assert events[0]["ph"] == "M"
    assert events[0]["args"]["start_time_since_epoch_in_micros"] > 1.6e15
    labels = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    lanes: dict[tuple[int, int], list[str]] = {}
    depth: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], float] = {}
    for event in events:
        if event["ph"] in "Mi":
            continue
        place = event["pid"], event["tid"]
        assert event["ts"] >= last.get(place, 0.0), event
        last[place] = event["ts"]
        depth[place] = depth.get(place, 0) + {"B": 1, "E": -1, "X": 0}[event["ph"]]
        assert depth[place] >= 0, event
        text = {"B": f"{event.get('name')}(", "E": ")", "X": event.get("name")}[event["ph"]]
        lanes.setdefault(place, []).append(text)
    if all_closed:
        assert not any(depth.values()), depth
    rows: dict[str, list[str]] = {}
    for place, texts in sorted(lanes.items()):
        rows.setdefault(labels[place[0]], []).append(" ".join(texts))
    return rows


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_file_of_an_interrupted_job_can_be_read(
    syrtosrun: Any, tmp_path: Path, no_process_left: str, number: signal.Signals
) -> None:
    path = tmp_path / "t.json"
    with syrtosrun.start(
        *("-np", "2", "--timeline-filename", str(path), "--timeline-mark-cycles"),
        *(sys.executable, "-c", ENDLESS),
    ) as process:
        try:
            wait_for(lambda: path.exists() and path.read_text().count("GLOO_") > 50, "events")
            load_cut(path)  # while it is written
            process.send_signal(number)
            process.communicate(timeout=HANG)
        finally:
            process.kill()
    name, _, mark = no_process_left.partition("=")
    wait_for(lambda: not processes_with(name, mark), "the end of the ranks")
    if number != signal.SIGKILL:
        load(path)
    rows = spans(load_cut(path), all_closed=False)
    assert {"allreduce.first", 'allreduce.second "quoted"\n'} <= set(rows)
    assert any(event.get("name") == "CYCLE_START" for event in load_cut(path))


@pytest.mark.parametrize("kind", ["folder", "no such folder", "full disk"])
def test_a_path_that_cannot_be_written_is_a_warning(
    syrtosrun: Any, tmp_path: Path, kind: str
) -> None:
    path = {
        "folder": str(tmp_path),
        "no such folder": str(tmp_path / "none" / "t.json"),
        "full disk": "/dev/full",
    }[kind]
    done = syrtosrun(
        *("-np", "2", "--timeline-filename", path, sys.executable, "-c", SHORT), timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained") == 2
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert len(warnings) == 1, done.stderr
    assert f'the timeline file "{path}" cannot be written' in warnings[0]


def every_rank_body(folder: str) -> dict[str, Any]:
    import numpy as np

    import syrtos.numpy as hvd

    before = time.time()
    begin = time.perf_counter()
    hvd.init()
    hvd.allreduce(np.ones(3), name="first")
    first_done = time.perf_counter() - begin
    after = time.time()
    path = f"{folder}/t{hvd.rank()}.json"
    wait_for(lambda: "allreduce.first" in Path(path).read_text(), "the first event")
    load(path)

    for _ in range(3):
        hvd.grouped_allreduce([np.ones(4), np.ones(5)], name="pair")
    handles = [hvd.allreduce_async(np.ones(10)) for _ in range(20)]
    for handle in handles:
        handle.wait()
    hvd.allreduce(np.ones(3), op=hvd.Adasum, name="adasum")
    hvd.allgather(np.ones((hvd.rank() + 1, 2)), name="rows")
    hvd.broadcast(np.ones(3), 0, name="root")
    hvd.alltoall(np.ones(hvd.size()), name="all")
    hvd.reducescatter(np.ones(4), name="scatter")
    hvd.barrier()
    pair, last = hvd.add_process_set([0, 1]), hvd.add_process_set([hvd.size() - 1])
    if pair.included():
        hvd.allreduce(np.ones(3), name="set", process_set=pair)
    if last.included():
        hvd.allreduce(np.ones(3), name="alone", process_set=last)
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(np.ones(hvd.rank() + 1), name="unequal")
    if hvd.rank() == 0:  # the others go on without this rank for a while
        hvd.join()
    else:
        hvd.allreduce(np.ones(3), name="without rank 0")
        hvd.join()
    hvd.shutdown()
    return {"before": before, "after": after, "first_done": first_done}


def test_every_rank_writes_its_own_file_if_asked(tmp_path: Path) -> None:
    ranks = 4
    results = run_ranks(
        every_rank_body, ranks, str(tmp_path), env={"SYRTOS_TIMELINE": f"{tmp_path}/t{{rank}}.json"}
    )
    for rank, result in enumerate(results):
        events = load(tmp_path / f"t{rank}.json")
        first = events[0]["args"]
        assert first["rank"] == rank
        start = first["start_time_since_epoch_in_micros"] / 1e6
        assert result["before"] - 1e-3 <= start <= result["after"] + 1e-3
        times = [event["ts"] for event in events if "ts" in event]
        assert 0 <= times[0] <= result["first_done"] * 1e6
        check_rows(spans(events), rank, ranks)


def check_rows(rows: dict[str, list[str]], rank: int, ranks: int) -> None:
    def ready(text: str) -> list[str]:
        """Return the ticks in it, and fail if they are not in its NEGOTIATE span."""
        inside = text[text.index("(") + 1 : text.index(")")].split()
        assert sum(word.isdigit() for word in text.split()) == len(inside)
        return sorted(inside)

    everyone = [str(n) for n in range(ranks)] if rank == 0 else []
    ends = {
        "allreduce.first": "ALLREDUCE( QUEUE( ) GLOO_ALLREDUCE( ) )",
        "allreduce.adasum": "ALLREDUCE( QUEUE( ) GLOO_ADASUM_ALLREDUCE( ) )",
        "allgather.rows": "ALLGATHER( QUEUE( ) ALLOCATE_OUTPUT( ) GLOO_ALLGATHER( ) )",
        "broadcast.root": "BROADCAST( QUEUE( ) GLOO_BCAST( ) )",
        "alltoall.all": "ALLTOALL( QUEUE( ) ALLOCATE_OUTPUT( ) GLOO_ALLTOALL( ) )",
    }
    for label, end in ends.items():
        (text,) = rows[label]
        assert text.startswith(f"NEGOTIATE_{label.split('.')[0].upper()}("), text
        assert text.endswith(f") {end}"), text
        assert ready(text) == everyone, text
    (text,) = rows["allreduce.unequal"]
    assert ready(text) == everyone, text
    assert " ALLREDUCE" not in text, "ranks did not agree"
    assert "REDUCESCATTER( QUEUE( ) " in rows["reducescatter.scatter"][0]
    fused = "MEMCPY_IN_FUSION_BUFFER( ) GLOO_ALLREDUCE( ) MEMCPY_OUT_FUSION_BUFFER( )"
    assert rows["allreduce.pair"][0].count(f"ALLREDUCE( QUEUE( ) {fused} )") == 3
    assert sum(text.count(" ALLREDUCE(") for text in rows["allreduce.noname"]) == 20
    assert ("allreduce.set (process set 1)" in rows) == (rank < 2)
    assert ("allreduce.alone (process set 2)" in rows) == (rank == ranks - 1)
    (text,) = rows.get("allreduce.without rank 0", [""])
    assert ("GLOO_ALLREDUCE" in text) == (rank > 0), text


def dynamic_body(folder: str) -> None:
    import numpy as np

    import syrtos.numpy as hvd

    for function in (lambda: hvd.start_timeline(f"{folder}/a.json"), hvd.stop_timeline):
        with pytest.raises(NotInitializedError) as info:
            function()
        assert isinstance(info.value, ValueError)
    hvd.init()
    me = hvd.rank()

    def step(name: str) -> None:
        hvd.barrier()  # no rank is ahead of rank 0, whose timeline shows the others' posts too
        hvd.allreduce(np.ones(3), name=name)

    hvd.stop_timeline()  # nothing to stop
    step("before")
    hvd.start_timeline(f"{folder}/a.json")
    step("in a")
    hvd.stop_timeline()
    hvd.stop_timeline()
    step("between")
    hvd.start_timeline(Path(folder, "b{rank}.json"), mark_cycles=True)
    step("in b")
    if me == 0:
        with pytest.raises(InvalidRequestError, match=f'"{folder}" cannot be written'):
            hvd.start_timeline(folder)
    step("in b too")
    hvd.start_timeline(f"{folder}/c{{rank}}.json")  # in place of b
    step("in c")
    hvd.shutdown()
    with pytest.raises(NotInitializedError):
        hvd.stop_timeline()


def reductions(rows: dict[str, list[str]]) -> set[str]:
    return {label for label in rows if label.startswith("allreduce.")}


def test_start_and_stop_at_run_time(tmp_path: Path) -> None:
    run_ranks(dynamic_body, 2, str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {
        *("a.json", "b0.json", "b1.json", "c0.json", "c1.json")
    }
    a = load(tmp_path / "a.json")
    assert a[0]["args"]["rank"] == 0
    assert reductions(spans(a)) == {"allreduce.in a"}
    for rank in range(2):
        b = load(tmp_path / f"b{rank}.json")
        assert reductions(spans(b)) == {"allreduce.in b", "allreduce.in b too"}
        assert any(event.get("name") == "CYCLE_START" for event in b)
        c = load(tmp_path / f"c{rank}.json")
        assert reductions(spans(c)) == {"allreduce.in c"}
        assert not any(event.get("name") == "CYCLE_START" for event in c)


def test_horovods_variables_and_names_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    import syrtos.numpy as hvd

    path = tmp_path / "t.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))
    monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1")
    hvd.init()
    try:
        hvd.allreduce(np.ones(3, np.float32), name="test_allreduce")
        wait_for(lambda: "LOCAL_ALLREDUCE" in path.read_text(), "the event")
        text = path.read_text()
        for word in ("allreduce.test_allreduce", "NEGOTIATE_ALLREDUCE", "CYCLE_START"):
            assert word in text
        begins = [event for event in load(path) if event.get("name") == "ALLREDUCE"]
        assert begins[0]["args"] == {"dtype": "float32", "shape": "(3,)"}
    finally:
        hvd.shutdown()
    expected = "NEGOTIATE_ALLREDUCE( 0 ) ALLREDUCE( QUEUE( ) LOCAL_ALLREDUCE( ) )"
    assert spans(load(path)) == {"allreduce.test_allreduce": [expected]}


def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    import numpy as np

    import syrtos.numpy as hvd

    path = tmp_path / "t.json"
    hvd.init(timeline_path=str(path))
    try:
        hvd.allreduce(np.ones(3), name="parent")
        child = os.fork()
        if child == 0:
            try:
                hvd.start_timeline(str(path))
                code = 1
            except NotInitializedError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        hvd.allreduce(np.ones(3), name="later")
    finally:
        hvd.shutdown()
    assert set(spans(load(path))) == {"allreduce.parent", "allreduce.later"}
