"""demos/serve: tokens come from the engine's thread to the event loop in order, all of them."""

import asyncio
import threading
from collections import deque
from functools import partial

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from app import Mailbox


def in_thread(function):
    """Runs it to its end in another thread, while this one does nothing else."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(60)


def test_what_is_posted_before_the_loop_looks_wakes_it_once(monkeypatch):
    async def run():
        loop, calls = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda f: calls.append(f) or wake(f))
        mailbox, queues = Mailbox(loop), [asyncio.Queue(), asyncio.Queue()]
        for turn in range(3):
            in_thread(lambda: [mailbox.post(queues[n % 2], n) for n in range(64)])
            assert len(calls) == turn + 1
            for odd, queue in enumerate(queues):
                assert [await queue.get() for _ in range(32)] == [*range(odd, 64, 2)]

    asyncio.run(asyncio.wait_for(run(), 30))


def test_nothing_is_lost_while_the_loop_reads():
    count = 3000

    async def run():
        mailbox = Mailbox(asyncio.get_running_loop())
        queues = [asyncio.Queue() for _ in range(4)]
        posts = [lambda q=q: [mailbox.post(q, n) for n in range(count)] for q in queues]
        threads = [threading.Thread(target=post) for post in posts]
        for thread in threads:
            thread.start()
        for queue in queues:
            assert [await queue.get() for _ in range(count)] == [*range(count)]
        for thread in threads:
            thread.join(60)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_what_is_posted_just_after_the_loop_has_looked_wakes_it_again():
    async def run():
        mailbox, queue = Mailbox(asyncio.get_running_loop()), asyncio.Queue()

        class Posted(deque):
            late = iter([2])

            def __len__(self):
                length = super().__len__()
                if length == 0:
                    for value in self.late:
                        in_thread(partial(mailbox.post, queue, value))
                return length

        mailbox._posted = Posted()
        mailbox.post(queue, 1)
        assert [await queue.get() for _ in range(2)] == [1, 2]

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_loop_that_is_closed_is_left_alone():
    loop = asyncio.new_event_loop()
    loop.close()
    Mailbox(loop).post(asyncio.Queue(), 1)
