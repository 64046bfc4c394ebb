"""Ctrl-C while a turn runs: once cancels the turn, twice leaves."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

from sage_client import Chat
from sage_client.errors import SageError


class CtrlC:
    """Cancels a turn at the first Ctrl-C, so that its events go on to their end. The next one is raised."""

    def __init__(self, chat: Chat) -> None:
        self.asked = False
        self._chat = chat
        self._sent = False
        # Only there can signals be handled; elsewhere nobody presses keys.
        self._handles = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._handles:
            self._before = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handles:
            signal.signal(signal.SIGINT, self._before)

    def event_seen(self) -> None:
        """Call it after each event: a turn is known by its first, and can be cancelled from then on."""
        if self.asked and self._chat.turn_id and not self._sent:
            self._sent = True
            # Not here: a handler must not wait for a call on the channel that it may have interrupted.
            threading.Thread(target=self._cancel, daemon=True).start()

    def _pressed(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # Past Python's buffer, in whose middle the signal may have come.
        os.write(sys.stderr.fileno(), b"\nCancelling the turn. Ctrl-C again leaves without waiting.\n")
        self.event_seen()

    def _cancel(self) -> None:
        with suppress(SageError):
            self._chat.cancel()
