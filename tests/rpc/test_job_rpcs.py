"""Background jobs through the real client and server, as an operator sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

import sage_client
from sage_client import AsyncSageClient
from sage_server.domain.jobs import Job, JobKind

KINDS = [kind.value for kind in JobKind]


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def add_dead(database: asyncpg.Connection, kind: JobKind, error_type: str) -> str:
    """A job that failed for good a minute ago, after three tries."""
    job_id = await database.fetchval(
        "INSERT INTO pgqueuer (priority, status, entrypoint, payload, attempts, created, updated) "
        "VALUES (0, 'failed', $1, $2, 2, now() - interval '2 minutes', now() - interval '1 minute') "
        "RETURNING id",
        kind.value,
        Job(kind, uuid4(), uuid4(), 1, 2).pack(),
    )
    await database.execute(
        "INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, traceback) "
        "VALUES ($1, 'failed', 0, $2, jsonb_build_object('exception_type', $3::text))",
        job_id,
        kind.value,
        error_type,
    )
    return str(job_id)


async def test_stats_have_every_kind(client: AsyncSageClient, database: asyncpg.Connection) -> None:
    await add_dead(database, JobKind.INGEST_DOCUMENT, "ValueError")
    stats = {queue.kind: queue for queue in await client.admin.job_stats()}
    assert list(stats) == KINDS
    assert {kind: queue.dead for kind, queue in stats.items()} == {
        kind: int(kind == "ingest_document") for kind in KINDS
    }


async def test_a_dead_job_shows_its_reason_and_can_be_queued_again(
    client: AsyncSageClient, database: asyncpg.Connection
) -> None:
    job_id = await add_dead(database, JobKind.INDEX_ITEMS, "EMBEDDING_UNAVAILABLE")
    (dead,) = [job async for job in client.admin.list_dead_jobs()]
    assert (dead.id, dead.kind, dead.attempts, dead.error_type) == (
        job_id,
        "index_items",
        3,
        "EMBEDDING_UNAVAILABLE",
    )
    assert dead.fail_time - dead.create_time == timedelta(minutes=1)
    await client.admin.retry_dead_job(job_id)
    assert [job async for job in client.admin.list_dead_jobs()] == []
    with pytest.raises(sage_client.NotFound):
        await client.admin.retry_dead_job(job_id)


@pytest.mark.parametrize("job_id", ["0", "9" * 30, "-1", "\u0663", "job"])
async def test_what_is_no_dead_job_is_not_found(client: AsyncSageClient, job_id: str) -> None:
    with pytest.raises(sage_client.NotFound):
        await client.admin.retry_dead_job(job_id)


async def test_dead_jobs_are_listed_page_by_page_and_by_kind(
    client: AsyncSageClient, database: asyncpg.Connection
) -> None:
    kinds = [JobKind.INDEX_ITEMS, JobKind.REEMBED_USER, JobKind.INDEX_ITEMS]
    ids = [await add_dead(database, kind, "ValueError") for kind in kinds]
    assert [job.id async for job in client.admin.list_dead_jobs(page_size=1)] == ids[::-1]
    assert [job.id async for job in client.admin.list_dead_jobs(kind="index_items", page_size=1)] == [
        ids[2],
        ids[0],
    ]
    assert [job async for job in client.admin.list_dead_jobs(kind="of_another_version")] == []
    first = await client.admin.list_dead_jobs_page(page_size=1)
    with pytest.raises(sage_client.InvalidArgument):
        await client.admin.list_dead_jobs_page(page_token=first.next_page_token, kind="index_items")
