"""Data loaders that read ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

pytestmark = pytest.mark.timeout(60)


class Numbers(BaseDataLoader):
    """Passes of three batches: 0 1 2, then 10 11 12, ..."""

    def __init__(self, fail_in: int | None = None) -> None:
        self.passes = 0
        self.fail_in = fail_in
        self.read: list[int] = []

    def __len__(self) -> int:
        return 3

    def _iterate(self) -> Iterator[int]:
        start = 10 * self.passes
        self.passes += 1
        for number in range(start, start + 3):
            self.read.append(number)
            if number == self.fail_in:
                raise OSError(f"no batch {number}")
            yield number

    def _process_batch(self, batch: int) -> str:
        return f"<{batch}>"


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


@pytest.fixture(params=[0, 1, 2, 64])
def loader(request: pytest.FixtureRequest) -> Iterator[AsyncNumbers]:
    found = AsyncNumbers(request.param)
    yield found
    found.close_async_loader()
    assert not found.thread.is_alive()


def test_each_loop_is_a_pass(loader):
    assert len(loader) == 3
    for start in (0, 10, 20):
        assert list(loader) == [f"<{start + i}>" for i in range(3)]


def test_leaving_a_loop_gives_up_the_rest_of_the_pass(loader):
    for batch in loader:
        assert batch == "<0>"
        break
    assert list(loader) == ["<10>", "<11>", "<12>"]


@pytest.mark.parametrize("size", [0, 1, 64])
def test_an_error_is_raised_by_the_loop_of_its_pass(size):
    loader = AsyncNumbers(size, False, fail_in=11)
    assert list(loader) == ["<0>", "<1>", "<2>"]
    batches = iter(loader)
    assert next(batches) == "<10>"
    with pytest.raises(OSError, match="no batch 11"):
        next(batches)
    assert list(loader) == ["<20>", "<21>", "<22>"]
    loader.close_async_loader()


def test_it_reads_ahead_but_no_further_than_asked():
    class Count(AsyncDataLoaderMixin, BaseDataLoader):
        read = 0

        def _iterate(self) -> Iterator[int]:
            while True:
                self.read += 1
                yield self.read

    loader = Count(2)
    batches = iter(loader)
    assert next(batches) == 1
    pause = threading.Event()
    while loader.read < 4:  # one is used, two are in the queue, one waits to be put there
        pause.wait(0.01)
    pause.wait(0.3)
    assert loader.read == 4
    loader.close_async_loader()
    with pytest.raises(RuntimeError, match="Count has been closed"):
        next(batches)
    loader.close_async_loader()


def test_closing_wakes_a_loop_that_waits():
    class Slow(AsyncDataLoaderMixin, BaseDataLoader):
        def _iterate(self) -> Iterator[int]:
            while not self.finished_event.wait(0.01):
                pass
            yield 1

    loader = Slow()
    timer = threading.Timer(0.2, loader.close_async_loader)
    timer.start()
    with pytest.raises(RuntimeError, match="has been closed"):
        next(iter(loader))
    timer.join()


def test_a_loader_that_says_nothing_is_an_error():
    with pytest.raises(NotImplementedError, match="BaseDataLoader does not say how it loads"):
        next(iter(BaseDataLoader()))
    with pytest.raises(NotImplementedError, match="how many batches"):
        len(BaseDataLoader())


def test_it_tells_what_it_does_if_asked(capsys):
    loader = AsyncNumbers(4, True)
    list(loader)
    loader.close_async_loader()
    out = capsys.readouterr().out
    assert "AsyncNumbers: pass 0 has been read" in out
    assert "AsyncNumbers: closed" in out
