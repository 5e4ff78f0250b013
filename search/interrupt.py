"""Ctrl-C as a wish that the search looks at, not as an exception that any callback may swallow."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """Event that the first Ctrl-C sets; the second one raises KeyboardInterrupt as usual.

    Outside of the main thread, which alone receives signals, the event is never set.
    """
    stop = threading.Event()

    def wish(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, wish)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
