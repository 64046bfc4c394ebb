"""Followers of events: every event once, in order, whatever happens to them and to the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import pytest

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.events import Delta, Event, EventChannel, Heartbeat, Payload, Silent, Told, Typing
from sage_server.engine import event_feed
from sage_server.engine.event_hub import EventHub, Following, HubOptions
from support.clock import FakeClock
from support.event_log import AGENT, DONE, MAIN, MemoryEventLog, numbered, words

MARIA, OTTO = UUID(int=101), UUID(int=102)
LONG = 60.0
OTHER = Told(UUID(int=2), AGENT, UUID(int=9), EventChannel.PROACTIVE)


@dataclass
class Wires:
    """Notices between hubs, which tests can cut."""

    ends: list[Callable[[UUID], None]] = field(default_factory=list)
    sent: list[UUID] = field(default_factory=list)

    def send(self, user_id: UUID) -> None:
        self.sent.append(user_id)
        for heard in self.ends:
            heard(user_id)

    async def run(self, heard: Callable[[UUID], None]) -> None:
        self.ends.append(heard)


@dataclass
class Replica:
    """A hub on a log that others may share."""

    log: MemoryEventLog
    hub: EventHub

    def tell(self, user_id: UUID, *payloads: Payload, told: Told = MAIN) -> list[Event]:
        """Store and publish, as a turn does."""
        events = self.log.store(user_id, *payloads, told=told)
        self.hub.publish(user_id, events)
        return events

    def follow(
        self,
        after: int = 0,
        *,
        user_id: UUID = MARIA,
        wanted: Callable[[Event], bool] = lambda _: True,
        deltas: bool = False,
        heartbeat: float = LONG,
    ) -> Following:
        return self.hub.follow(user_id, after, wanted=wanted, deltas=deltas, heartbeat=heartbeat)

    def follow_turn(
        self, after: int = 0, *, told: Told = MAIN, deltas: bool = False, heartbeat: float = LONG
    ) -> Following:
        return self.hub.follow_turn(MARIA, told.turn_id, after, deltas=deltas, heartbeat=heartbeat)


@contextlib.asynccontextmanager
async def replica(
    log: MemoryEventLog | None = None, wires: Wires | None = None, options: HubOptions | None = None
) -> AsyncIterator[Replica]:
    log = log or MemoryEventLog({MARIA: [], OTTO: []})
    hub = EventHub(log, wires, FakeClock(), options)
    if wires is not None:
        await wires.run(hub.heard)
    running = asyncio.create_task(hub.run())
    try:
        async with asyncio.timeout(30):
            yield Replica(log, hub)
    finally:
        hub.close()
        running.cancel()
        await asyncio.wait([running])


async def take(following: Following, count: int) -> list[Event]:
    return [await anext(following) for _ in range(count)]


def numbers(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


async def test_what_is_published_arrives_at_once_and_without_a_read() -> None:
    async with replica() as here:
        following = here.follow_turn(0)
        here.tell(MARIA, *numbered(3))
        assert numbers(await take(following, 3)) == [1, 2, 3]
        here.tell(MARIA, *numbered(2), DONE)
        assert numbers([event async for event in following]) == [4, 5, 6]
        assert here.log.reads == 0


async def test_a_follower_gets_what_happened_before_and_what_happens_then() -> None:
    async with replica() as here:
        here.log.store(MARIA, *numbered(500))
        following = here.follow(3)
        assert numbers(await take(following, 497)) == list(range(4, 501))
        here.tell(MARIA, *numbered(2))
        assert numbers(await take(following, 2)) == [501, 502]


async def test_what_is_published_out_of_order_arrives_in_order() -> None:
    async with replica(options=HubOptions(poll=LONG)) as here:
        following = here.follow()
        here.tell(MARIA, *numbered(1))
        await take(following, 1)
        await asyncio.sleep(0.05)  # the only poll is over
        second, third, fourth = (here.log.store(MARIA, *numbered(1)) for _ in range(3))
        for events in (fourth, second, third):
            here.hub.publish(MARIA, events)
        assert numbers(await take(following, 3)) == [2, 3, 4]
        here.tell(MARIA, *numbered(1))
        assert numbers(await take(following, 1)) == [5]


@pytest.mark.parametrize("notices", [True, False])
async def test_what_another_process_stored_arrives(notices: bool) -> None:
    wires = Wires() if notices else None
    options = HubOptions(poll=LONG if notices else 0.02)
    async with replica(None, wires, options) as here, replica(here.log, wires, options) as there:
        following = there.follow()
        here.tell(MARIA, *numbered(2))
        assert numbers(await take(following, 2)) == [1, 2]
        here.tell(MARIA, *numbered(2))
        assert numbers(await take(following, 2)) == [3, 4]


async def test_followers_of_a_user_share_one_read() -> None:
    async with replica(options=HubOptions(poll=0.02)) as here:
        followers = [here.follow() for _ in range(20)]
        waiting = [asyncio.create_task(take(one, 3)) for one in followers]
        await asyncio.sleep(0.1)
        here.log.store(MARIA, *numbered(3))
        for task in waiting:
            assert numbers(await task) == [1, 2, 3]
        assert here.log.reads == 1


async def test_a_follower_that_is_too_slow_for_what_is_held_misses_nothing() -> None:
    async with replica() as here:
        slow, fast = here.follow(), here.follow()
        got: list[int] = []
        for _ in range(20):
            here.tell(MARIA, *numbered(50))
            got += numbers(await take(fast, 50))
        assert got == list(range(1, 1001))
        assert here.log.reads == 0
        feed = here.hub._feeds[MARIA]
        assert len(feed._held) == event_feed.HELD
        assert numbers(await take(slow, 1000)) == got
        assert here.log.reads > 0


async def test_what_everybody_has_seen_is_not_held() -> None:
    async with replica() as here:
        following = here.follow()
        for _ in range(5):
            here.tell(MARIA, *numbered(10))
            await take(following, 10)
        assert len(here.hub._feeds[MARIA]._held) == 10


async def test_numbers_whose_events_are_gone_are_passed_and_not_asked_for_again() -> None:
    """As when a thread was cleared."""
    async with replica(options=HubOptions(poll=0.02)) as here:
        following = here.follow(heartbeat=0.2)
        here.tell(MARIA, *numbered(1))
        await take(following, 1)
        here.log.cleared = {2, 4, 5}
        here.log.store(MARIA, *numbered(4))
        assert numbers(await take(following, 1)) == [3]
        assert (await anext(following)).payload == Heartbeat(5)
        assert here.log.reads == 1
        here.tell(MARIA, *numbered(1))
        assert numbers(await take(following, 1)) == [6]


async def test_a_heartbeat_names_what_was_passed_also_if_nothing_of_it_was_wanted() -> None:
    async with replica() as here:
        following = here.follow(wanted=lambda event: event.channel is EventChannel.PROACTIVE, heartbeat=0.05)
        first = await anext(following)
        assert first.payload == Heartbeat(0)
        assert (first.seq, first.turn_id, first.agent_id) == (0, None, None)
        here.tell(MARIA, *numbered(4))
        beats = [(await anext(following)).payload for _ in range(2)]
        assert beats[-1] == Heartbeat(4)
        here.tell(MARIA, *numbered(1), told=OTHER)
        async for event in following:
            if not isinstance(event.payload, Heartbeat):
                assert event.seq == 5
                break


async def test_heartbeats_go_on_while_events_come_that_are_not_wanted() -> None:
    async with replica() as here:
        following = here.follow(wanted=lambda _: False, heartbeat=0.05)

        async def chatter() -> None:
            while True:
                here.tell(MARIA, *numbered(1))
                await asyncio.sleep(0.005)

        talking = asyncio.create_task(chatter())
        beats = [event.payload for event in await take(following, 3)]
        talking.cancel()
        assert all(isinstance(beat, Heartbeat) for beat in beats)


async def test_a_turns_heartbeat_names_the_turn() -> None:
    async with replica() as here:
        following = here.follow_turn(told=OTHER, heartbeat=0.05)
        here.tell(MARIA, *numbered(1), told=OTHER)
        await take(following, 1)
        beat = await anext(following)
        assert isinstance(beat.payload, Heartbeat)
        assert (beat.turn_id, beat.agent_id, beat.conversation_id, beat.channel, beat.step) == (*OTHER, 0)


async def test_a_turn_is_shown_alone_and_to_its_end() -> None:
    async with replica() as here:
        here.log.store(MARIA, *numbered(300))
        here.log.store(MARIA, *numbered(2), told=OTHER)
        following = here.follow_turn(told=OTHER)
        assert numbers(await take(following, 2)) == [301, 302]
        here.tell(MARIA, *numbered(3), DONE)
        here.tell(MARIA, *numbered(1), DONE, told=OTHER)
        assert numbers([event async for event in following]) == [307, 308]
        assert not here.hub._feeds


async def test_a_turn_that_has_ended_is_shown_from_the_store() -> None:
    async with replica() as here:
        here.log.store(MARIA, *numbered(450), DONE)
        assert numbers([event async for event in here.follow_turn(10)]) == list(range(11, 452))


async def test_words_come_between_the_events_around_them() -> None:
    async with replica() as here:
        following = here.follow_turn(deltas=True)
        deaf = here.follow_turn()
        for step in (1, 2):
            here.tell(MARIA, Typing(f"step {step}"))
            for offset, text in enumerate("abc"):
                here.hub.delta(MARIA, words(MAIN, step, text, offset))
            here.tell(MARIA, Silent(uuid4()))
        here.tell(MARIA, DONE)
        kinds = [_shown(event) async for event in following]
        assert kinds == ["Typing", "a", "b", "c", "Silent", "Typing", "a", "b", "c", "Silent", "Done"]
        assert [_shown(event) async for event in deaf] == ["Typing", "Silent", "Typing", "Silent", "Done"]


async def test_words_wait_for_an_event_before_them_that_must_be_read() -> None:
    async with replica(options=HubOptions(poll=LONG)) as here:
        following = here.follow_turn(deltas=True)
        here.tell(MARIA, *numbered(1))
        await take(following, 1)
        here.log.store(MARIA, *numbered(1), told=OTHER)  # of another process, not heard of yet
        here.tell(MARIA, Typing("late"))
        here.hub.delta(MARIA, words(MAIN, 1, "a"))
        here.tell(MARIA, DONE)
        assert [_shown(event) async for event in following] == ["Typing", "a", "Done"]


async def test_a_slow_follower_sees_the_beginning_of_a_message_and_the_next_one_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_feed, "_WORDS_HELD", 3)
    async with replica() as here:
        following = here.follow_turn(deltas=True)
        here.tell(MARIA, Typing("1"))
        for offset, text in enumerate("abcd"):
            here.hub.delta(MARIA, words(MAIN, 1, text, offset))
        assert [_shown(event) for event in await take(following, 4)] == ["Typing", "a", "b", "c"]
        here.hub.delta(MARIA, words(MAIN, 1, "e", 4))
        here.tell(MARIA, Silent(uuid4()), Typing("2"))
        here.hub.delta(MARIA, words(MAIN, 2, "f", 0))
        here.hub.delta(MARIA, words(MAIN, 2, "g", 1))
        assert [_shown(event) for event in await take(following, 4)] == ["Silent", "Typing", "f", "g"]


async def test_an_outage_of_the_store_is_waited_out_with_heartbeats() -> None:
    async with replica(options=HubOptions(poll=0.02)) as here:
        following = here.follow(heartbeat=0.05)
        here.log.store(MARIA, *numbered(3))
        here.log.away = True
        assert isinstance((await anext(following)).payload, Heartbeat)
        assert isinstance((await anext(following)).payload, Heartbeat)
        here.log.away = False
        seen: list[int] = []
        while len(seen) < 3:
            event = await anext(following)
            seen += [event.seq] if event.seq else []
        assert seen == [1, 2, 3]


async def test_an_outage_while_a_follower_catches_up_is_waited_out() -> None:
    async with replica(options=HubOptions(poll=0.02)) as here:
        here.log.store(MARIA, *numbered(500))
        following = here.follow()
        await take(following, 200)
        here.log.away = True
        waiting = asyncio.create_task(take(following, 300))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        here.log.away = False
        assert numbers(await waiting) == list(range(201, 501))


async def test_watchers_end_when_the_process_stops_and_turns_go_on_until_it_closes() -> None:
    async with replica() as here:
        watcher, turn, other = here.follow(), here.follow_turn(), here.follow_turn(told=OTHER)
        watching = asyncio.create_task(take(watcher, 1))
        await asyncio.sleep(0)
        here.hub.close_watchers()
        with pytest.raises(SageError) as ended:
            await watching
        assert ended.value.reason is Reason.SHUTTING_DOWN
        assert ended.value.retry_after is not None
        with pytest.raises(SageError):
            here.follow()
        here.tell(MARIA, DONE)
        assert numbers([event async for event in turn]) == [1]
        here.hub.close()
        with pytest.raises(SageError) as closed:
            await take(other, 1)
        assert closed.value.reason is Reason.SHUTTING_DOWN


async def test_too_many_watchers_are_refused_and_places_are_given_back() -> None:
    async with replica(options=HubOptions(watchers=3, watchers_per_user=2)) as here:
        first, second = here.follow(), here.follow()
        with pytest.raises(SageError) as refused:
            here.follow()
        assert (refused.value.reason, refused.value.metadata) == (Reason.OVERLOADED, {"scope": "user"})
        assert refused.value.retry_after is not None
        ottos = here.follow(user_id=OTTO)
        with pytest.raises(SageError) as full:
            here.follow(user_id=OTTO)
        assert full.value.metadata == {"scope": "server"}
        here.follow_turn()  # is no watcher, and is dropped here without a word
        await first.aclose()
        here.tell(MARIA, *numbered(1))
        third = here.follow()
        for one in (second, third, ottos):
            await one.aclose()
        assert not here.hub._feeds


async def test_whoever_is_forgotten_goes_on_if_the_user_is_still_there() -> None:
    async with replica(options=HubOptions(poll=LONG)) as here:
        following = here.follow(deltas=True)
        here.tell(MARIA, *numbered(2))
        here.hub.delta(MARIA, words(MAIN, 1, "old"))
        here.hub.forget_all()
        assert not here.hub._feeds[MARIA]._held
        assert numbers(await take(following, 2)) == [1, 2]
        here.tell(MARIA, *numbered(1))
        assert numbers(await take(following, 1)) == [3]


async def test_followers_of_an_erased_user_are_told_so() -> None:
    async with replica(options=HubOptions(poll=LONG)) as here:
        following, ottos = here.follow(), here.follow(user_id=OTTO)
        here.tell(MARIA, *numbered(2))
        here.log.erase(MARIA)
        here.hub.forget(MARIA)
        with pytest.raises(SageError) as ended:
            await take(following, 1)
        assert ended.value.reason is Reason.USER_ERASED
        here.tell(OTTO, *numbered(1))
        assert numbers(await take(ottos, 1)) == [1]


async def test_events_that_go_before_a_follower_has_read_them_are_not_passed_over() -> None:
    async with replica() as here:
        here.log.store(MARIA, *numbered(500))
        following = here.follow()
        await take(following, 200)
        here.log.prune(MARIA, 300)
        with pytest.raises(SageError) as expired:
            await take(following, 1)
        assert expired.value.reason is Reason.EVENT_CURSOR_EXPIRED
        assert expired.value.metadata == {"oldest_event_id": "301"}


async def test_every_commit_sends_a_notice() -> None:
    wires = Wires()
    async with replica(wires=wires) as here:
        here.tell(OTTO, *numbered(2))
        here.hub.publish(MARIA, [])
        assert wires.sent == [OTTO]


def _shown(event: Event) -> str:
    return event.payload.text if isinstance(event.payload, Delta) else type(event.payload).__name__
