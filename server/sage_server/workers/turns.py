"""Turns that run in this process, detached from whoever asked for them."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from uuid import UUID

from sage_server.domain.agents import Agent
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.flags import Feature
from sage_server.domain.turns import LeaseLost
from sage_server.engine.failpoints import NO_FAILPOINTS, Failpoints
from sage_server.engine.turns.execution import TurnExecution
from sage_server.ports.clock import Clock
from sage_server.ports.flags import Flags
from sage_server.ports.turns import Lease, TurnKey, TurnStore

_log = logging.getLogger("sage.turns")
_LEAVING = 0.1
"""Seconds for a turn that has just ended here, and so is not held any more, to say so."""


@dataclass
class _Running:
    """A turn and the task that runs it."""

    key: TurnKey
    task: asyncio.Task[None]


class TurnWorkers:
    """Runs turns, keeps their leases, and takes up what other processes left behind. Implements TurnHost.

    At most `most` turns run at once; more than that wait with their leases, for which `recover` takes none.
    """

    def __init__(
        self,
        *,
        execution: TurnExecution,
        store: TurnStore,
        flags: Flags,
        clock: Clock,
        most: int,
        failpoints: Failpoints = NO_FAILPOINTS,
    ) -> None:
        self._execution = execution
        self._store = store
        self._flags = flags
        self._clock = clock
        self._most = most
        self._failpoints = failpoints
        self._room = asyncio.Semaphore(most)
        self._running: dict[UUID, _Running] = {}
        self._waking: set[asyncio.Task[None]] = set()
        self._closing = False
        self.started = 0
        self.left = 0
        """Turns that could not be run to an end here, and were taken up again by somebody."""

    @property
    def running(self) -> int:
        """Turns that run here, or wait for room."""
        return len(self._running)

    def start(self, lease: Lease, *, agent: Agent | None = None) -> None:
        """See TurnHost."""
        turn_id = lease.turn.id
        self.stop(turn_id)  # a try that lost its lease
        self.started += 1
        task = asyncio.create_task(self._run(lease, agent), name=f"turn-{turn_id}")
        running = _Running((lease.user_id, turn_id), task)
        self._running[turn_id] = running
        task.add_done_callback(lambda _: self._ended(turn_id, running))

    def stop(self, turn_id: UUID) -> None:
        """See TurnHost."""
        running = self._running.pop(turn_id, None)
        if running is not None:
            running.task.cancel()

    def wake(self, user_id: UUID, conversation_id: UUID) -> None:
        """See TurnHost."""
        if self._closing:
            return
        task = asyncio.create_task(self._take_next(user_id, conversation_id), name="next-turn")
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _take_next(self, user_id: UUID, conversation_id: UUID) -> None:
        self._failpoints.reach("claim.before")
        try:
            lease = await self._store.take_next(user_id, conversation_id, self._clock.now())
        except SageError as error:  # `recover` takes it
            _log.info("the next turn was not taken: %s", error)
            return
        self._failpoints.reach("claim.after")
        if lease is not None and not self._closing:
            self.start(lease)

    async def renew(self) -> None:
        """Prolong the leases of what runs here, and leave what is in other hands by now."""
        held = {running.key: running for running in self._running.values()}
        if not held:
            return
        self._failpoints.reach("renew.before")
        kept = await self._store.renew(held)
        self._failpoints.reach("renew.after")
        lost = [running for key, running in held.items() if key not in kept]
        if lost:
            await asyncio.sleep(_LEAVING)
        for running in lost:
            _, turn_id = running.key
            if self._running.get(turn_id) is running:
                _log.info("a turn is in other hands", extra={"turn": turn_id})
                self.stop(turn_id)

    async def recover(self) -> None:
        """Take up turns that nobody runs, while there is room."""
        room = self._most - len(self._running)
        if self._closing or room <= 0 or not await self._flags.globally_on(Feature.TURNS):
            return
        self._failpoints.reach("recover.before")
        for lease in await self._store.take_abandoned(room, self._clock.now()):
            self._failpoints.reach("recover.after")
            if not self._closing:
                self.start(lease)

    def close(self) -> None:
        """Take up nothing more."""
        self._closing = True

    async def drain(self, grace: float) -> None:
        """Let what runs finish for a while, and give the rest to other processes."""
        self.close()
        give_up = time.monotonic() + grace
        while self._running and time.monotonic() < give_up:  # noqa: ASYNC110 (once a process)
            await asyncio.sleep(0.02)
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._waking, return_exceptions=True)
        self._failpoints.reach("release.before")
        try:
            released = await self._store.release()
        except SageError as error:
            _log.warning("turns were not given back: %s", error)
            return
        self._failpoints.reach("release.after")
        if released:
            _log.info("turns were given to other processes", extra={"turns": released})

    async def _run(self, lease: Lease, agent: Agent | None) -> None:
        async with self._room:
            waits = await self._executed(lease, agent)
        if waits:
            self.wake(lease.user_id, lease.turn.conversation_id)

    async def _executed(self, lease: Lease, agent: Agent | None) -> bool:
        """The outermost boundary of a turn: whatever it raises ends it. Whether another turn may wait for
        its end."""
        said = {"turn": lease.turn.id, "user": lease.user_id}
        try:
            return await self._execution.run(lease, agent)
        except LeaseLost:
            _log.info("a turn is in other hands", extra=said)
        except SageError as error:
            _log.warning("a turn was left, and is taken up again: %s", error, extra=said)
        except Exception as error:  # noqa: BLE001
            _log.error("a turn failed unexpectedly", exc_info=error, extra=said)
            await self._failed(lease)
            return True
        self.left += 1
        return False

    async def _failed(self, lease: Lease) -> None:
        error = SageError(Reason.INTERNAL, "Something went wrong on the server.")
        try:
            await self._execution.fail(lease, error)
        except (LeaseLost, SageError) as again:
            _log.warning("a turn could not be ended: %s", type(again).__name__)

    def _ended(self, turn_id: UUID, running: _Running) -> None:
        if not running.task.cancelled() and (error := running.task.exception()) is not None:
            _log.error("a turn could not be ended", exc_info=error, extra={"turn": turn_id})
        if self._running.get(turn_id) is running:
            del self._running[turn_id]
