"""Shows events to whoever follows them, wherever they were stored.

Followers pull. What is stored in this process reaches them directly; of what others store they learn by
notices and by polling, and it is read once for all followers of a user. Whoever is too slow, or comes with an
old number, reads the store until it has caught up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeAlias
from uuid import UUID
from weakref import WeakSet

from sage_server.domain.errors import Reason, SageError, user_erased
from sage_server.domain.events import Event, EventChannel, Heartbeat, cursor_expired
from sage_server.engine.event_feed import HELD, Feed, Follower, Wanted
from sage_server.ports.clock import Clock
from sage_server.ports.event_notices import EventNotices
from sage_server.ports.events import EventStore

PASSING = frozenset({Reason.DATABASE_UNAVAILABLE, Reason.OVERLOADED})
"""What a follower waits for to pass."""
_BATCH = 200
_READERS = 4
_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_Read: TypeAlias = Callable[[int, int], Awaitable[Sequence[Event]]]


@dataclass(frozen=True)
class HubOptions:
    """How many may watch, and how long an event of another process may go unseen without a notice.

    0 switches a limit off. Followers of a turn are not limited here: each is a call, and those are counted.
    """

    watchers: int = 512
    watchers_per_user: int = 100
    poll: float = 0.5


class Following(AsyncIterator[Event]):
    """Events as they come, counted from the moment that this was made. To be iterated once, and closed."""

    def __init__(self, events: AsyncGenerator[Event], leave: Callable[[], None]) -> None:
        self._events = events
        self._leave = leave

    async def __anext__(self) -> Event:
        return await self._events.__anext__()

    async def aclose(self) -> None:
        """Follow no longer."""
        await self._events.aclose()
        self._leave()


class EventHub:
    """All followers of this process. One of the caches that forget users."""

    def __init__(
        self,
        store: EventStore,
        notices: EventNotices | None,
        clock: Clock,
        options: HubOptions | None = None,
    ) -> None:
        self._store = store
        self._notices = notices
        self._clock = clock
        self._options = options or HubOptions()
        self._feeds: dict[UUID, Feed] = {}
        self._watchers: WeakSet[Follower] = WeakSet()
        self._readers = asyncio.Semaphore(_READERS)
        self._noticed: set[UUID] = set()
        self._notice = asyncio.Event()
        self._watching = True
        self._open = True

    def publish(self, user_id: UUID, events: Sequence[Event]) -> None:
        """Show events that this process has just committed, in their order. Call it after every commit."""
        if not events:
            return
        if self._notices is not None:
            self._notices.send(user_id)
        feed = self._feeds.get(user_id)
        if feed is not None:
            feed.published(events)
            if feed.behind:
                self.heard(user_id)

    def delta(self, user_id: UUID, event: Event) -> None:
        """Show words that are not stored to those in this process who want them: after what was published
        before, and before what is published later."""
        feed = self._feeds.get(user_id)
        if feed is not None:
            feed.say(event)

    def wants_deltas(self, user_id: UUID) -> bool:
        """Whether somebody in this process wants to see words while they are written."""
        feed = self._feeds.get(user_id)
        return feed is not None and any(follower.deltas for follower in feed.followers)

    def heard(self, user_id: UUID) -> None:
        """There may be new events of the user."""
        if user_id in self._feeds:
            self._noticed.add(user_id)
            self._notice.set()

    def follow(
        self, user_id: UUID, after: int, *, wanted: Wanted, deltas: bool, heartbeat: float
    ) -> Following:
        """The user's events after a number, in order, for ever; of those, the ones that are wanted.

        When nothing was shown for `heartbeat` seconds, a heartbeat with the number up to which all events
        have been passed. An outage of the database is waited out. Raises OVERLOADED if too many watch;
        ends with SHUTTING_DOWN, with USER_ERASED, or with EVENT_CURSOR_EXPIRED if events that it needs go
        before it has read them.
        """
        follower = Follower(after, wanted, deltas=deltas, watches=True)
        self._admit(user_id)
        self._watchers.add(follower)
        return self._following(user_id, follower, partial(self._backlog, user_id), heartbeat, None)

    def follow_turn(
        self, user_id: UUID, turn_id: UUID, after: int, *, deltas: bool, heartbeat: float
    ) -> Following:
        """The events of a turn after a number, in order, until it has ended.

        Heartbeats and outages as for `follow`. If nothing is stored after the number but what is published
        before the next await, nothing is read from the store: `follow_turn` with the number before the
        turn's first event, then `publish`.

        A turn that has ended must have events after the number, or this waits for ever.
        """
        follower = Follower(after, lambda event: event.turn_id == turn_id, deltas=deltas, watches=False)
        if not self._open:
            raise shutting_down()
        read = partial(self._store.of_turn, user_id, turn_id)
        return self._following(user_id, follower, read, heartbeat, turn_id)

    async def run(self) -> None:
        """Learn what other processes stored, until cancelled: at once of users of whom there was a notice,
        and twice a second of all who are followed here."""
        loop = asyncio.get_running_loop()
        poll_at = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(poll_at):
                    await self._notice.wait()
            self._notice.clear()
            users, self._noticed = self._noticed, set()
            if loop.time() >= poll_at:
                poll_at = loop.time() + self._options.poll
                self._sweep()
                users = set(self._feeds)
            try:
                await self._look(users)
            except SageError as error:
                if error.reason not in PASSING:
                    raise
                await asyncio.sleep(self._options.poll)  # after which everybody is asked for again

    def close_watchers(self) -> None:
        """The process stops: those who follow for ever end now, and no more of them come in."""
        self._watching = False
        for follower in list(self._watchers):
            follower.ended = shutting_down
        for feed in self._feeds.values():
            feed.wake()

    def close(self) -> None:
        """Everybody ends now, and nobody comes in."""
        self.close_watchers()
        self._open = False
        for feed in list(self._feeds.values()):
            self._end(feed, shutting_down)

    def forget(self, user_id: UUID) -> None:
        """Drop what is held of a user. Their followers go on if the user is still there."""
        feed = self._feeds.get(user_id)
        if feed is not None:
            feed.forget()
            self.heard(user_id)

    def forget_all(self) -> None:
        """Drop what is held of everybody."""
        for user_id in list(self._feeds):
            self.forget(user_id)

    def _admit(self, user_id: UUID) -> None:
        if not self._watching:
            raise shutting_down()
        options = self._options
        if options.watchers and len(self._watchers) >= options.watchers:
            raise _too_many("server")
        feed = self._feeds.get(user_id)
        mine = 0 if feed is None else sum(one.watches for one in feed.followers)
        if options.watchers_per_user and mine >= options.watchers_per_user:
            raise _too_many("user")

    def _following(
        self, user_id: UUID, follower: Follower, read: _Read, heartbeat: float, turn_id: UUID | None
    ) -> Following:
        """Follow from now on, not from the first look at it: what is published meanwhile is not missed."""
        feed = self._feeds.get(user_id)
        if feed is None:
            feed = self._feeds[user_id] = Feed(user_id)
        feed.followers.add(follower)
        leave = partial(self._leave, feed, follower)
        return Following(self._events(feed, follower, read, heartbeat, turn_id), leave)

    async def _events(
        self, feed: Feed, follower: Follower, read: _Read, heartbeat: float, turn_id: UUID | None
    ) -> AsyncGenerator[Event]:
        loop = asyncio.get_running_loop()
        due = loop.time() + heartbeat
        like = Event(0, turn_id, 0, self._clock.now(), None, None, EventChannel.PROACTIVE, Heartbeat(0))
        try:
            while True:
                ready = await self._ready(feed, follower, read)
                for event in ready or ():
                    yield event
                    due = loop.time() + heartbeat
                    if turn_id is not None:
                        like = event
                        if event.last:
                            return
                if loop.time() >= due:
                    yield replace(
                        like,
                        seq=0,
                        step=0,
                        created_at=self._clock.now(),
                        payload=Heartbeat(follower.cursor),
                    )
                    due = loop.time() + heartbeat
                elif ready is None:
                    await asyncio.wait([feed.changed()], timeout=due - loop.time())
        finally:
            self._leave(feed, follower)

    async def _ready(self, feed: Feed, follower: Follower, read: _Read) -> Sequence[Event] | None:
        """What the follower is to see next; None if there is nothing to do before the feed changes."""
        if follower.ended is not None:
            raise follower.ended()
        last = feed.last
        if last is None:
            self.heard(feed.user_id)
            return None
        if follower.cursor < feed.floor:
            return await self._caught_up(feed, follower, read, last)
        return follower.take(feed.after(follower.cursor), last) or None

    async def _caught_up(self, feed: Feed, follower: Follower, read: _Read, last: int) -> Sequence[Event]:
        """Read in the store what is no longer held."""
        generation = feed.generation
        try:
            async with self._readers:
                events = await read(follower.cursor, _BATCH)
        except SageError as error:
            if error.reason not in PASSING:
                raise
            follower.failures += 1
            pause = min(_SHORTEST_PAUSE * 2 ** min(follower.failures, 10), _LONGEST_PAUSE)
            await asyncio.wait([feed.changed()], timeout=pause)
            return ()
        follower.failures = 0
        if feed.generation != generation:
            return ()
        return follower.take(events, last if len(events) < _BATCH else follower.cursor)

    async def _backlog(self, user_id: UUID, number: int, limit: int) -> Sequence[Event]:
        """The next events; raises EVENT_CURSOR_EXPIRED if some before them are gone."""
        events = await self._store.after(user_id, number, limit)
        kept = await self._store.range(user_id)
        if number < kept.oldest - 1:
            raise cursor_expired(kept.oldest)
        return events

    async def _look(self, user_ids: Collection[UUID]) -> None:
        """Ask where the logs end, and read what is new."""
        feeds = [feed for user_id in user_ids if (feed := self._feeds.get(user_id)) is not None]
        if not feeds:
            return
        last = await self._store.last([feed.user_id for feed in feeds])
        for feed in feeds:
            number = last.get(feed.user_id)
            if number is None:
                self._end(feed, user_erased)
            else:
                feed.know(number)
        await asyncio.gather(*(self._fill(feed) for feed in feeds if feed.behind))

    async def _fill(self, feed: Feed) -> None:
        """Read what is new, once for all followers."""
        generation, last, target = feed.generation, feed.last, feed.target
        if last is None:
            return
        if target - last > HELD:
            feed.skip()
            return
        try:
            async with self._readers:
                events = await self._store.after(feed.user_id, last, HELD)
        except SageError as error:
            if error.reason in PASSING:
                raise
            feed.skip()  # each follower meets the error where it reads for itself
            return
        if feed.generation == generation:
            feed.read(events, target if len(events) < HELD else 0)

    def _end(self, feed: Feed, why: Callable[[], SageError]) -> None:
        if self._feeds.get(feed.user_id) is feed:
            del self._feeds[feed.user_id]
        for follower in list(feed.followers):
            follower.ended = why
        feed.wake()

    def _leave(self, feed: Feed, follower: Follower) -> None:
        self._watchers.discard(follower)
        feed.followers.discard(follower)
        if not feed.followers and self._feeds.get(feed.user_id) is feed:
            del self._feeds[feed.user_id]

    def _sweep(self) -> None:
        """Forget users whose followers went without a word."""
        for user_id, feed in list(self._feeds.items()):
            if not feed.followers:
                del self._feeds[user_id]


def shutting_down() -> SageError:
    """The process stops; another one takes over."""
    return SageError(
        Reason.SHUTTING_DOWN,
        "The server is stopping. Try again: another one takes over.",
        retry_after=timedelta(seconds=1),
    )


def _too_many(scope: str) -> SageError:
    return SageError(
        Reason.OVERLOADED,
        f"The {scope} has too many watchers.",
        metadata={"scope": scope},
        retry_after=timedelta(seconds=1),
    )
