"""The methods of AdminService about background jobs: decode, one call, encode."""

from __future__ import annotations

from sage.v1 import admin_pb2
from sage.v1 import admin_service_pb2 as pb
from sage_server.domain.errors import not_found
from sage_server.domain.identity import Caller
from sage_server.domain.ids import INSTALLATION
from sage_server.domain.jobs import DeadJob, JobKind, JobQueueStats
from sage_server.domain.paging import page_size
from sage_server.rpc.mapping import to_timestamp
from sage_server.rpc.page_tokens import PageTokens, decode_seq, encode_seq
from sage_server.services.jobs import Jobs

_KINDS = {kind.value: kind for kind in JobKind}
_LARGEST_ID = 2**63 - 1


class JobServicer:
    """For operators only; the registry says so."""

    def __init__(self, jobs: Jobs, pages: PageTokens) -> None:
        self._jobs = jobs
        self._pages = pages

    async def get_job_stats(self, _request: pb.GetJobStatsRequest, _caller: Caller) -> pb.GetJobStatsResponse:
        """One for each kind."""
        return pb.GetJobStatsResponse(queues=[_to_stats(stats) for stats in await self._jobs.stats()])

    async def list_dead_jobs(
        self, request: pb.ListDeadJobsRequest, _caller: Caller
    ) -> pb.ListDeadJobsResponse:
        """A page of dead jobs. Of a kind that does not exist there are none."""
        after = await self._pages.read(INSTALLATION, request, decode_seq)
        if request.kind and request.kind not in _KINDS:
            return pb.ListDeadJobsResponse()
        page = await self._jobs.dead(_KINDS.get(request.kind), page_size(request.page_size), after)
        return pb.ListDeadJobsResponse(
            jobs=[_to_dead_job(job) for job in page.rows],
            next_page_token=await self._pages.write(INSTALLATION, request, encode_seq(page.next)),
        )

    async def retry_dead_job(
        self, request: pb.RetryDeadJobRequest, _caller: Caller
    ) -> pb.RetryDeadJobResponse:
        """One more chance."""
        await self._jobs.retry(_job_id(request.job_id))
        return pb.RetryDeadJobResponse()


def _job_id(text: str) -> int:
    """Ids are the queue's own numbers. What is no number is the id of nothing."""
    if not (text.isascii() and text.isdigit()) or int(text) > _LARGEST_ID:
        raise not_found("job")
    return int(text)


def _to_stats(stats: JobQueueStats) -> admin_pb2.JobQueueStats:
    return admin_pb2.JobQueueStats(
        kind=stats.kind.value,
        queued=stats.queued,
        running=stats.running,
        dead=stats.dead,
        lag_seconds=stats.lag_seconds,
    )


def _to_dead_job(job: DeadJob) -> admin_pb2.DeadJob:
    return admin_pb2.DeadJob(
        id=str(job.id),
        kind=job.kind.value,
        attempts=job.attempts,
        error_type=job.error_type,
        create_time=to_timestamp(job.created_at),
        fail_time=to_timestamp(job.failed_at),
    )
