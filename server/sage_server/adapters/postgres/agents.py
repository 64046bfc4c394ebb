"""Agents on Postgres."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

import asyncpg
from sqlalchemy import (
    ARRAY,
    BigInteger,
    LargeBinary,
    Uuid,
    bindparam,
    func,
    insert,
    select,
    update,
)

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.agent_deletion import clear_thread, delete_agent
from sage_server.adapters.postgres.agent_rows import (
    AGENT_COLUMNS,
    NAME_TAG,
    agent_answer,
    agent_values,
    answered_agent,
    opened_agent,
)
from sage_server.adapters.postgres.block_rows import LABEL_TAG, block_values, revision_values
from sage_server.adapters.postgres.blocks import INSERT_BLOCK
from sage_server.adapters.postgres.conversations import INSERT_CONVERSATION, conversation_values
from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.schema import (
    IS_ARCHIVAL,
    IS_LIVE,
    agents,
    conversations,
    heads,
    memories,
    memory_blocks,
    user_keys,
)
from sage_server.adapters.postgres.sealed_rows import cipher_for, write_sealed
from sage_server.domain.agents import (
    MAX_AGENTS,
    Agent,
    MemoryMode,
    agent_not_found,
    agent_taken,
    overlay_not_empty,
    too_many_agents,
)
from sage_server.domain.blocks import MAX_BLOCKS, Block, BlockActor, BlockActorKind, too_many_blocks
from sage_server.domain.conversations import Conversation, ConversationKind, ConversationMemory
from sage_server.domain.errors import user_erased
from sage_server.domain.idempotency import Once
from sage_server.ports.agents import ClearedThread, DeletedAgent
from sage_server.ports.keys import KeyRing, UserCipher

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BY_SERVER = BlockActor(BlockActorKind.SYSTEM)
_a, _c, _b, _m = agents.c, conversations.c, memory_blocks.c, memories.c
_USER = bindparam("user_id", type_=Uuid())
_OWNED = _a.user_id == _USER
_THIS = _OWNED & (_a.id == bindparam("agent_id", type_=Uuid()))
_FORMS = bindparam("forms", type_=ARRAY(LargeBinary()))
_NAMED = (_a.name_tag == func.any(_FORMS)) | (_a.id == bindparam("named_id", type_=Uuid()))
_with_thread = agents.join(conversations, (_c.user_id == _a.user_id) & (_c.id == _a.conversation_id))
# Read together with the rows: a cipher that is older may not know the labels that they have.
_newest = (
    select(func.max(user_keys.c.key_version).label("newest"))
    .where(user_keys.c.user_id == _USER)
    .subquery("newest")
)
_LOCK = Statement(select(heads.c.user_id).where(heads.c.user_id == _USER).with_for_update())
_FIND = Statement(
    select(_newest.c.newest, *AGENT_COLUMNS).select_from(_newest.outerjoin(_with_thread, _OWNED & _NAMED))
)
_RESOLVE = Statement(
    select(_newest.c.newest, _a.id, _a.conversation_id).select_from(
        _newest.outerjoin(agents, _OWNED & _NAMED)
    )
)
_LIST = Statement(select(*AGENT_COLUMNS).select_from(_with_thread).where(_OWNED))
_STATE = Statement(
    select(
        _newest.c.newest,
        select(func.count()).where(_OWNED).scalar_subquery().label("agents"),
        select(_a.id).where(_OWNED, _a.name_tag == func.any(_FORMS)).exists().label("taken"),
        select(func.count()).where(_b.user_id == _USER).scalar_subquery().label("blocks"),
    )
)
_TAKEN_LABELS = Statement(
    select(_b.label_tag).where(
        _b.user_id == _USER,
        _b.agent_id.is_(None),
        _b.label_tag == func.any(bindparam("labels", type_=ARRAY(LargeBinary()))),
    )
)
_INSERT_THREAD = Statement(INSERT_CONVERSATION)
_INSERT = Statement(
    insert(agents).values({column.name: bindparam(column.name, type_=column.type) for column in agents.c})
)
_FIXED = {"user_id", "id", "conversation_id", "created_at", "last_turn_at"}
_UPDATE = Statement(
    update(agents)
    .where(_THIS, _a.version == bindparam("expected", type_=BigInteger()))
    .values(
        {
            column.name: bindparam(column.name, type_=column.type)
            for column in agents.c
            if column.name not in _FIXED
        }
    )
)
_OVERLAY = Statement(
    select(
        (
            select(func.count()).where(_b.user_id == _USER, _b.agent_id == _a.id).scalar_subquery()
            + select(func.count())
            .where(_m.user_id == _USER, _m.agent_id == _a.id, IS_LIVE, IS_ARCHIVAL)
            .scalar_subquery()
        ).label("changes")
    ).where(_THIS, _a.memory_mode == int(MemoryMode.OVERLAY))
)


@dataclass(frozen=True)
class _Creation:
    """An agent to be created."""

    user_id: UUID
    agent: Agent
    blocks: Sequence[Block]
    once: Once | None


class PostgresAgentStore:
    """Implements AgentStore and AgentDirectory."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def created_before(self, user_id: UUID, once: Once) -> Agent | None:
        """By the kept answer."""
        earlier = await replays.find(self._database, self._keys, user_id, once)
        return None if earlier is None else answered_agent(earlier.answer)

    async def create(self, user_id: UUID, agent: Agent, blocks: Sequence[Block], once: Once | None) -> Agent:
        """One transaction. It locks the user's head, so creations of one user take turns."""
        creation = _Creation(user_id, agent, blocks, once)

        async def write(cipher: UserCipher) -> bool:
            return await self._database.transact(partial(_create, cipher=cipher, creation=creation))

        try:
            while not await write_sealed(self._keys, user_id, write):
                self._keys.forget(user_id)
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            first = await replays.replayed(self._database, self._keys, user_id, once)
            return answered_agent(first.answer)
        return agent

    async def get(self, user_id: UUID, agent: str) -> Agent:
        """By id, or by every form that the name may have."""
        cipher, row = await self._found(_FIND, user_id, agent)
        return opened_agent(await cipher_for(self._keys, user_id, [row], cipher), row)

    async def resolve(self, user_id: UUID, agent: str) -> UUID:
        """As `get`, without opening anything."""
        _, row = await self._found(_RESOLVE, user_id, agent)
        found: UUID = row["id"]
        return found

    async def own_thread(self, user_id: UUID, agent: str) -> UUID:
        """As `resolve`."""
        _, row = await self._found(_RESOLVE, user_id, agent)
        found: UUID = row["conversation_id"]
        return found

    async def list(self, user_id: UUID) -> Sequence[Agent]:
        """Names are sealed, so they are sorted once they are open."""
        before = await self._keys.cipher(user_id)
        rows = await self._database.fetch(_LIST, user_id=user_id)
        cipher = await cipher_for(self._keys, user_id, rows, before)
        return sorted((opened_agent(cipher, row) for row in rows), key=lambda agent: agent.name)

    async def update(self, user_id: UUID, changed: Agent) -> bool:
        """One transaction. What goes into the agent's own memory waits for it at the user's head."""

        async def write(cipher: UserCipher) -> bool:
            async def together(transaction: Transaction) -> bool:
                await transaction.fetchrow(_LOCK, user_id=user_id)
                if changed.memory_mode is not MemoryMode.OVERLAY:
                    left = await transaction.fetchrow(_OVERLAY, user_id=user_id, agent_id=changed.id)
                    if left is not None and left["changes"]:
                        raise overlay_not_empty(left["changes"])
                row = agent_values(cipher, user_id, changed)
                expected = changed.version - 1
                return bool(await transaction.execute(_UPDATE, agent_id=changed.id, expected=expected, **row))

            return await self._database.transact(together)

        return await write_sealed(self._keys, user_id, write)

    async def delete(self, user_id: UUID, agent: Agent, now: datetime) -> DeletedAgent | None:
        """One transaction."""

        async def write(cipher: UserCipher) -> DeletedAgent | None:
            return await self._database.transact(
                partial(delete_agent, cipher=cipher, user_id=user_id, agent=agent, now=now)
            )

        return await write_sealed(self._keys, user_id, write)

    async def clear(self, user_id: UUID, agent: Agent, now: datetime) -> ClearedThread:
        """One transaction."""
        return await self._database.transact(partial(clear_thread, user_id=user_id, agent=agent, now=now))

    async def _found(self, statement: Statement, user_id: UUID, agent: str) -> tuple[UserCipher, Record]:
        cipher = await self._keys.cipher(user_id)
        named_id = UUID(agent) if _ID.fullmatch(agent) else None
        while True:
            forms = list(cipher.tag_forms(NAME_TAG, agent))
            row = await self._database.fetchrow(statement, user_id=user_id, forms=forms, named_id=named_id)
            assert row is not None
            if row["id"] is not None:
                return cipher, row
            if row["newest"] is None or row["newest"] <= cipher.key_version:
                raise agent_not_found()
            cipher = await self._keys.cipher(user_id, at_least=row["newest"])


async def _create(transaction: Transaction, cipher: UserCipher, creation: _Creation) -> bool:
    """False, and nothing is written, if the cipher is too old to tell whether the name is taken."""
    user_id, agent, once = creation.user_id, creation.agent, creation.once
    if await transaction.fetchrow(_LOCK, user_id=user_id) is None:
        raise user_erased()
    forms = list(cipher.tag_forms(NAME_TAG, agent.name))
    state = await transaction.fetchrow(_STATE, user_id=user_id, forms=forms)
    assert state is not None
    if state["newest"] > cipher.key_version:
        return False
    if once is not None:
        # Before the name is judged: a repeat that waited for the lock finds it taken, by itself.
        kept = replays.values(cipher, user_id, once, agent_answer(agent), agent.created_at)
        await transaction.execute(replays.INSERT, **kept)
    if state["taken"]:
        raise agent_taken()
    if state["agents"] >= MAX_AGENTS:
        raise too_many_agents()
    blocks = await _free(transaction, cipher, creation)
    if blocks and state["blocks"] + len(blocks) > MAX_BLOCKS:
        raise too_many_blocks()
    thread = conversation_values(cipher, user_id, _thread_of(agent)) | {"kind": ConversationKind.AGENT}
    await transaction.execute(_INSERT_THREAD, **thread)
    await transaction.execute(_INSERT, **agent_values(cipher, user_id, agent))
    for block in blocks:
        revision = revision_values(cipher, user_id, block, _BY_SERVER, None)
        await transaction.execute(INSERT_BLOCK, **block_values(cipher, user_id, block), **revision)
    return True


async def _free(transaction: Transaction, cipher: UserCipher, creation: _Creation) -> list[Block]:
    """Those of the blocks whose labels nobody has taken."""
    forms = {block.id: cipher.tag_forms(LABEL_TAG, block.label) for block in creation.blocks}
    labels = [label for found in forms.values() for label in found]
    rows = await transaction.fetch(_TAKEN_LABELS, user_id=creation.user_id, labels=labels)
    taken = {row["label_tag"] for row in rows}
    return [block for block in creation.blocks if taken.isdisjoint(forms[block.id])]


def _thread_of(agent: Agent) -> Conversation:
    return Conversation(
        id=agent.conversation_id,
        title="",
        metadata={},
        private=False,
        memory=ConversationMemory.AGENT,
        created_at=agent.created_at,
        updated_at=agent.created_at,
    )
