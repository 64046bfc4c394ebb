"""What filters and evidence look at: one number a row for each attribute, and the order of messages."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

from sage_server.domain.memories import Memory, MemoryFilter, MemorySource, TagMatch
from sage_server.engine.memory_index.authors import Authors

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]
SESSION_PAUSE = timedelta(hours=8)
"""Messages of a conversation that are further apart than this are of different sessions."""
_PAUSE = SESSION_PAUSE // timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NONE = -1
_COLUMNS: dict[str, type[np.generic]] = {
    "live": np.bool_,
    "embedded": np.bool_,
    "source": np.uint8,
    "time": np.int64,
    "agent": np.int32,
    "conversation": np.int32,
    "document": np.int32,
    "author": np.int32,
    "session": np.int32,
    "previous": np.int32,
    "next": np.int32,
}
_ROW_BYTES = sum(np.dtype(kind).itemsize for kind in _COLUMNS.values())
_Place: TypeAlias = tuple[int, int, int]
"""Position of the item, chunk, row."""


def micros(at: datetime) -> int:
    """A time as a number."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


class Attributes:
    """Attributes of rows, by row number. The caller adds, and clears, rows."""

    def __init__(self) -> None:
        self._columns: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(0, kind) for name, kind in _COLUMNS.items()
        }
        self._count = 0
        self._ids: dict[UUID, int] = {}
        self._own_threads: set[UUID] = set()
        self.authors = Authors()
        self._tags: dict[str, array[int]] = {}
        self._threads: dict[int, list[_Place]] = {}
        self._unordered: set[int] = set()
        self._sessions = 0
        self.messages = 0
        """Rows that are messages and there."""

    @property
    def bytes(self) -> int:
        """Memory that the attributes take, about."""
        tags = sum(64 + 4 * len(rows) for rows in self._tags.values())
        return len(self._columns["live"]) * _ROW_BYTES + tags + 120 * len(self._ids) + self.authors.bytes

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> npt.NDArray[Any]:
        """An attribute of every row."""
        return self._columns[name][: self._count]

    @property
    def session_count(self) -> int:
        """Sessions are numbered from 0 to this."""
        return self._sessions

    def holds(self, name: str, owner: UUID) -> bool:
        """Whether a row that is there is of this agent, conversation or document."""
        number = self._ids.get(owner)
        if number is None:
            return False
        return bool((self.column("live") & (self.column(name) == number)).any())

    def is_own_thread(self, conversation_id: UUID) -> bool:
        """Whether the conversation is known as an agent's own thread."""
        return conversation_id in self._own_threads

    def add(self, memories: Sequence[Memory], embedded: Sequence[bool]) -> None:
        """Add rows."""
        first, count = self._count, len(memories)
        self._reserve(count)
        self._count += count
        new = {name: column[first : self._count] for name, column in self._columns.items()}
        new["live"][:] = True
        new["embedded"][:] = embedded
        new["source"][:] = [memory.source for memory in memories]
        new["time"][:] = [micros(memory.created_at) for memory in memories]
        new["agent"][:] = [self._id(memory.agent_id) for memory in memories]
        new["conversation"][:] = [self._id(memory.provenance.conversation_id) for memory in memories]
        new["document"][:] = [self._id(memory.provenance.document_id) for memory in memories]
        for name in ("author", "session", "previous", "next"):
            new[name][:] = _NONE
        for row, memory in enumerate(memories, first):
            place = memory.provenance
            if place.thread_agent_id is not None and place.conversation_id is not None:
                self._own_threads.add(place.conversation_id)
            for tag in memory.tags:
                self._tags.setdefault(tag, array("I")).append(row)
            if memory.source is MemorySource.MESSAGE:
                self._place(row, memory)

    def clear(self, row: int, memory: Memory) -> None:
        """The row is no longer there."""
        self._columns["live"][row] = False
        author = int(self._columns["author"][row])
        if author != _NONE:
            self.authors.withdrew(author)
        thread = int(self._columns["conversation"][row])
        if memory.source is MemorySource.MESSAGE:
            self.messages -= 1
        if memory.source is MemorySource.MESSAGE and thread in self._threads:
            places = self._threads[thread]
            del places[bisect_left(places, _place_of(row, memory))]
            if thread not in self._unordered:
                self._unlink(row, thread)

    def _unlink(self, row: int, thread: int) -> None:
        """Join the neighbours of a message that goes. Only if that changes a session is all ordered anew."""
        columns = self._columns
        before, after = int(columns["previous"][row]), int(columns["next"][row])
        if before != _NONE:
            columns["next"][before] = after
        if after != _NONE:
            columns["previous"][after] = before
        if _NONE not in (before, after):
            apart = columns["time"][after] - columns["time"][before] > _PAUSE
            if apart != (columns["session"][before] != columns["session"][after]):
                self._unordered.add(thread)

    def mask(self, which: MemoryFilter) -> Mask | None:
        """The rows that a filter lets through; None if that is all of them."""
        live: Mask = self.column("live")
        found = live.copy()
        if which.sources:
            found &= np.isin(self.column("source"), [int(source) for source in which.sources])
        for name, wanted in (
            ("agent", which.agent_id),
            ("conversation", which.conversation_id),
            ("document", which.document_id),
        ):
            if wanted is not None:
                found &= self.column(name) == self._ids.get(wanted, _NONE - 1)
        if which.owners is not None:
            numbers = [_NONE if owner is None else self._ids.get(owner, _NONE - 1) for owner in which.owners]
            found &= np.isin(self.column("agent"), numbers)
        if which.start is not None:
            found &= self.column("time") >= micros(which.start)
        if which.end is not None:
            found &= self.column("time") < micros(which.end)
        if which.tags:
            found &= self._tagged(which)
        return None if found.all() else found

    def order(self) -> None:
        """Bring neighbours and sessions up to date."""
        while self._unordered:
            thread = self._unordered.pop()
            rows = np.array([place[2] for place in self._threads[thread]], np.int64)
            if not len(rows):
                continue
            self._columns["previous"][rows] = np.concatenate(([_NONE], rows[:-1]))
            self._columns["next"][rows] = np.concatenate((rows[1:], [_NONE]))
            breaks = np.diff(self._columns["time"][rows]) > _PAUSE
            numbers = np.concatenate(([0], np.cumsum(breaks)))
            self._columns["session"][rows] = self._sessions + numbers
            self._sessions += int(numbers[-1]) + 1

    def _tagged(self, which: MemoryFilter) -> Mask:
        masks = []
        for tag in dict.fromkeys(which.tags):
            mask = np.zeros(self._count, np.bool_)
            rows = self._tags.get(tag)
            if rows:
                mask[np.frombuffer(rows, np.uint32)] = True
            masks.append(mask)
        combine = np.logical_and if which.match is TagMatch.ALL else np.logical_or
        found: Mask = combine.reduce(masks)
        return found

    def _place(self, row: int, memory: Memory) -> None:
        """Put a message into the order of its conversation."""
        self.messages += 1
        origin = memory.provenance.origin
        if origin:
            self._columns["author"][row] = self.authors.spoke(origin)
        thread = int(self._columns["conversation"][row])
        places = self._threads.setdefault(thread, [])
        place = _place_of(row, memory)
        if thread in self._unordered or not places or place < places[-1]:
            insort(places, place)
            self._unordered.add(thread)
            return
        last = places[-1][2]
        places.append(place)
        self._columns["previous"][row] = last
        self._columns["next"][last] = row
        if self._columns["time"][row] - self._columns["time"][last] > _PAUSE:
            self._columns["session"][row] = self._sessions
            self._sessions += 1
        else:
            self._columns["session"][row] = self._columns["session"][last]

    def _id(self, value: UUID | None) -> int:
        return _NONE if value is None else self._ids.setdefault(value, len(self._ids))

    def _reserve(self, count: int) -> None:
        needed, room = self._count + count, len(self._columns["live"])
        if needed <= room:
            return
        size = max(needed, room * 3 // 2)
        for name, column in self._columns.items():
            grown = np.zeros(size, column.dtype)
            grown[: self._count] = column[: self._count]
            self._columns[name] = grown


def _place_of(row: int, memory: Memory) -> _Place:
    return memory.provenance.item_seq or 0, memory.provenance.chunk_index, row
