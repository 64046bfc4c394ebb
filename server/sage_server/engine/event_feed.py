"""What a process holds of one user's events while somebody follows them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias
from uuid import UUID
from weakref import WeakSet

from sage_server.domain.errors import SageError
from sage_server.domain.events import Delta, Event, Unknown

HELD = 256
"""Events that are held for the slower ones of a user's followers."""
_WORDS_HELD = 256
"""Deltas that are held for one follower."""
Wanted: TypeAlias = Callable[[Event], bool]


class Follower:
    """One reader: how far it is, and the words that wait for it."""

    def __init__(self, cursor: int, wanted: Wanted, *, deltas: bool, watches: bool) -> None:
        self.cursor = cursor
        """The highest number that it has passed."""
        self.watches = watches
        """Whether it follows all of the user's events and not one turn's."""
        self.failures = 0
        """How often in a row the store was away when it read there."""
        self.ended: Callable[[], SageError] | None = None
        """Why it must end."""
        self._wanted = wanted
        self.deltas = deltas
        self._words: deque[tuple[int, Event]] = deque()
        self._cut: set[UUID | None] = set()

    def take(self, events: Iterable[Event], upto: int) -> list[Event]:
        """Pass these events, which are all that there are up to that number; answers with what the reader is
        to see, words in their place among them."""
        seen: list[Event] = []
        for event in events:
            seen += self._words_before(event.seq)
            self.cursor = event.seq
            if self._wanted(event) and not isinstance(event.payload, Unknown):
                seen.append(event)
            if event.last:
                self._cut.discard(event.turn_id)
        self.cursor = max(self.cursor, upto)
        seen += self._words_before(self.cursor + 1)
        return seen

    def offer(self, after: int, event: Event) -> None:
        """Hold words that were said after the event of that number. Whoever is too slow for them sees no more
        of that message: what follows a gap would be out of place."""
        if not (self.deltas and self._wanted(event)):
            return
        if isinstance(event.payload, Delta) and event.payload.offset == 0:
            self._cut.discard(event.turn_id)
        if len(self._words) >= _WORDS_HELD:
            self._cut.add(event.turn_id)
        if event.turn_id not in self._cut:
            self._words.append((after, event))

    def drop_words(self) -> None:
        """Forget the words that wait."""
        self._cut.update(event.turn_id for _, event in self._words)
        self._words.clear()

    def _words_before(self, number: int) -> Iterator[Event]:
        while self._words and self._words[0][0] < number:
            yield self._words.popleft()[1]


class Feed:
    """The newest events of one user, shared by those who follow them here.

    All events with a number above `floor` and up to `last` are held. `target` is the highest number that is
    known to be stored; what lies between `last` and it must be read.
    """

    def __init__(self, user_id: UUID) -> None:
        self.user_id = user_id
        # Weak, so that a follower that nobody iterates any more does not stay.
        self.followers: WeakSet[Follower] = WeakSet()
        self.floor = 0
        self.last: int | None = None
        """None until somebody has said where the log ends."""
        self.target = 0
        self.generation = 0
        """Changes when everything is forgotten: what was read before must not be used after."""
        self._held: deque[Event] = deque()
        self._changed: asyncio.Future[None] | None = None

    @property
    def behind(self) -> bool:
        """Whether there are events to be read."""
        return self.last is not None and self.last < self.target

    def know(self, number: int) -> None:
        """Events up to this number are stored."""
        self.target = max(self.target, number)
        if self.last is None:
            self.floor = self.last = self.target
            self.wake()

    def published(self, events: Sequence[Event]) -> None:
        """Take events that were just stored, in order. Those after a gap must be read."""
        if self.last is None:
            self.floor = self.last = events[0].seq - 1
        for event in events:
            if event.seq == self.last + 1:
                self._hold(event)
        self.target = max(self.target, events[-1].seq)
        self._trim()

    def read(self, events: Sequence[Event], upto: int) -> None:
        """Take events that were read after `last`: all that there are up to their end, and up to `upto`."""
        assert self.last is not None
        for event in events:
            if event.seq > self.last:
                self._hold(event)
        self.last = max(self.last, upto)
        self.target = max(self.target, self.last)
        self._trim()

    def skip(self) -> None:
        """Hold nothing: followers read for themselves."""
        self._held.clear()
        self.floor = self.last = self.target
        self.wake()

    def forget(self) -> None:
        """Hold nothing, and know nothing."""
        self.generation += 1
        self._held.clear()
        self.last = None
        self.target = 0
        for follower in self.followers:
            follower.drop_words()

    def after(self, number: int) -> list[Event]:
        """What is held after a number that is not below `floor`."""
        return [event for event in self._held if event.seq > number]

    def say(self, event: Event) -> None:
        """Give words to those who want them, after all that is stored by now."""
        if self.last is None:
            return
        for follower in self.followers:
            follower.offer(self.target, event)
        self.wake()

    def changed(self) -> asyncio.Future[None]:
        """Done as soon as there may be something new."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def wake(self) -> None:
        """Have every follower look."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def _hold(self, event: Event) -> None:
        self._held.append(event)
        self.last = event.seq

    def _trim(self) -> None:
        """Let go of what everybody has passed, and of what is too much."""
        passed = min((one.cursor for one in self.followers), default=0)
        while self._held and (self._held[0].seq <= passed or len(self._held) > HELD):
            self.floor = self._held.popleft().seq
        self.wake()
