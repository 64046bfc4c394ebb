"""Counts of a user's memory."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from sqlalchemy import Text, bindparam, func, or_, select

from sage_server.adapters.postgres.database import Database, Statement
from sage_server.adapters.postgres.jobs import OF_USER, PICKED, QUEUED, jobs
from sage_server.adapters.postgres.memory_rows import MODEL_COLUMNS
from sage_server.adapters.postgres.memory_statements import OWNED
from sage_server.adapters.postgres.schema import IS_LIVE, documents, memories, memory_blocks
from sage_server.domain.documents import DocumentStatus
from sage_server.domain.jobs import Job, JobKind
from sage_server.domain.memories import MemorySource
from sage_server.ports.memories import Space
from sage_server.ports.memory_stats import SourceCount, StoredNumbers

_SOURCES = [
    Statement(
        select(
            memories.c.source,
            func.count().label("count"),
            func.count().filter(model.is_distinct_from(bindparam("model", type_=Text()))).label("pending"),
        )
        .where(OWNED, IS_LIVE)
        .group_by(memories.c.source)
    )
    for model in MODEL_COLUMNS
]
_BLOCKS = Statement(select(func.count()).where(memory_blocks.c.user_id == bindparam("user_id")))
_UNDER_WAY = documents.c.status == int(DocumentStatus.PROCESSING)
_DOCUMENTS = Statement(
    select(
        func.count().label("count"),
        func.count().filter(_UNDER_WAY).label("waiting"),
        (func.now() - func.min(documents.c.updated_at).filter(_UNDER_WAY)).label("age"),
    ).where(documents.c.user_id == bindparam("user_id"))
)
_MESSAGES = Statement(
    select(jobs.c.payload, (func.now() - jobs.c.created).label("age")).where(
        or_(jobs.c.status == QUEUED, jobs.c.status == PICKED),
        jobs.c.entrypoint == JobKind.INDEX_ITEMS.value,
        OF_USER,
    )
)
_NONE = timedelta(0)


class PostgresMemoryStatsStore:
    """Implements MemoryStatsStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def numbers(self, user_id: UUID, space: Space | None) -> StoredNumbers:
        """Counted, not estimated."""
        slot, model = (0, None) if space is None else (space.slot, space.model)
        sources = await self._database.fetch(_SOURCES[slot], user_id=user_id, model=model)
        blocks = await self._database.fetchrow(_BLOCKS, user_id=user_id)
        taken_in = await self._database.fetchrow(_DOCUMENTS, user_id=user_id)
        assert blocks is not None
        assert taken_in is not None
        waiting, lag = taken_in["waiting"], max(taken_in["age"] or _NONE, _NONE)
        for row in await self._database.fetch(_MESSAGES, user_id=user_id):
            job = Job.unpack(JobKind.INDEX_ITEMS, row["payload"])
            waiting += job.last - job.first + 1
            lag = max(lag, row["age"])
        return StoredNumbers(
            sources=[
                SourceCount(MemorySource(row["source"]), row["count"], row["pending"]) for row in sources
            ],
            blocks=blocks[0],
            documents=taken_in["count"],
            waiting=waiting,
            lag=lag,
        )
