"""Administration: API keys, users, keys, feature flags, background jobs, the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from sage.v1 import admin_service_pb2 as pb
from sage_client._async.paging import every
from sage_client._async.transport import AsyncTransport
from sage_client._wire.admin import (
    api_key_from,
    dead_job_from,
    erasure_from,
    flag_from,
    job_stats_from,
    server_info_from,
    user_from,
)
from sage_client._wire.enums import flag_scope_to, role_to
from sage_client._wire.times import time_to
from sage_client.models.admin import (
    ApiKey,
    ApiKeyRole,
    CreatedApiKey,
    DeadJob,
    Erasure,
    Flag,
    FlagScope,
    JobQueueStats,
    RootKeyRotation,
    ServerInfo,
    User,
)
from sage_client.models.page import Page
from sage_client.retry import Repeat

if TYPE_CHECKING:
    from sage.v1.admin_service_pb2_grpc import AdminServiceAsyncStub


class AsyncAdmin:
    """`client.admin`: needs a key with the role ADMIN, or OPERATOR to name another tenant.

    An empty `tenant` means the caller's.
    """

    def __init__(self, transport: AsyncTransport, stub: AdminServiceAsyncStub) -> None:
        self._transport = transport
        self._stub = stub

    async def create_api_key(
        self,
        name: str,
        role: ApiKeyRole = ApiKeyRole.SERVICE,
        *,
        tenant: str = "",
        expire_time: datetime | None = None,
        request_id: str | None = None,
    ) -> CreatedApiKey:
        """Create an API key. Its secret is shown here and never again."""
        request = pb.CreateApiKeyRequest(
            name=name,
            role=role_to(role),
            tenant=tenant,
            expire_time=time_to(expire_time),
            request_id=request_id or str(uuid4()),
        )
        response = await self._transport.unary(self._stub.CreateApiKey, request, repeat=Repeat.SAFE)
        return CreatedApiKey(api_key_from(response.api_key), response.secret)

    def list_api_keys(self, *, tenant: str = "", page_size: int = 0) -> AsyncIterator[ApiKey]:
        """All keys of a tenant, the newest first, revoked ones too."""
        return every(partial(self.list_api_keys_page, tenant=tenant, page_size=page_size))

    async def list_api_keys_page(
        self, *, page_token: str = "", tenant: str = "", page_size: int = 0
    ) -> Page[ApiKey]:
        """One page of keys."""
        request = pb.ListApiKeysRequest(page_size=page_size, page_token=page_token, tenant=tenant)
        response = await self._transport.unary(self._stub.ListApiKeys, request, repeat=Repeat.SAFE)
        return Page(tuple(api_key_from(message) for message in response.api_keys), response.next_page_token)

    async def revoke_api_key(self, api_key_id: str) -> ApiKey:
        """Revoke a key on every replica. A key that is revoked already stays so."""
        request = pb.RevokeApiKeyRequest(api_key_id=api_key_id)
        response = await self._transport.unary(self._stub.RevokeApiKey, request, repeat=Repeat.SAFE)
        return api_key_from(response.api_key)

    async def get_user(self, external_id: str, *, tenant: str = "") -> User:
        """Read a user. NotFound if the tenant has never seen this id, or it was erased."""
        request = pb.GetUserRequest(external_id=external_id, tenant=tenant)
        response = await self._transport.unary(self._stub.GetUser, request, repeat=Repeat.SAFE)
        return user_from(response.user)

    async def rotate_user_key(self, external_id: str, *, tenant: str = "") -> int:
        """Give a user a new key. The version that new rows are sealed with from now on."""
        request = pb.RotateUserKeyRequest(external_id=external_id, tenant=tenant)
        # A repeat would rotate once more, and seal every row of the user again for nothing.
        stub = self._stub.RotateUserKey
        response = await self._transport.unary(stub, request, repeat=Repeat.IF_REFUSED)
        return response.key_version

    async def erase_user(self, external_id: str, *, tenant: str = "") -> Erasure:
        """Erase a user for good: the key, every row, every cache.

        Unavailable and DeadlineExceeded leave open whether it was carried out, and the client does not decide
        that for you. Call again: an erasure that was cut short goes on, and the counts are then of the rest;
        NotFound means that it was complete. Somebody who has come back since is erased like anybody else.
        """
        request = pb.EraseUserRequest(external_id=external_id, tenant=tenant)
        # A repeat would report a complete erasure as NotFound, or erase whoever has come back in between.
        stub = self._stub.EraseUser
        response = await self._transport.unary(stub, request, repeat=Repeat.IF_REFUSED)
        return erasure_from(response)

    async def rotate_root_key(self) -> RootKeyRotation:
        """Make a new root key current and wrap every user's key with it. OPERATOR only."""
        request = pb.RotateRootKeyRequest()
        # The contract calls a repeat safe. It may leave one more root key behind, and finishes a rotation
        # that was cut short.
        response = await self._transport.unary(self._stub.RotateRootKey, request, repeat=Repeat.SAFE)
        return RootKeyRotation(response.root_key_id, response.rewrapped_keys)

    def list_flags(
        self, *, scope: FlagScope | None = None, tenant: str = "", page_size: int = 0
    ) -> AsyncIterator[Flag]:
        """All feature flags that are set, at one level or at every level that the caller may see."""
        return every(partial(self.list_flags_page, scope=scope, tenant=tenant, page_size=page_size))

    async def list_flags_page(
        self, *, page_token: str = "", scope: FlagScope | None = None, tenant: str = "", page_size: int = 0
    ) -> Page[Flag]:
        """One page of feature flags."""
        request = pb.ListFlagsRequest(
            page_size=page_size, page_token=page_token, scope=flag_scope_to(scope), tenant=tenant
        )
        response = await self._transport.unary(self._stub.ListFlags, request, repeat=Repeat.SAFE)
        return Page(tuple(flag_from(message) for message in response.flags), response.next_page_token)

    async def set_flag(
        self, name: str, scope: FlagScope, *, enabled: bool, tenant: str = "", external_id: str = ""
    ) -> Flag:
        """Set a feature flag at one level. The global one is for OPERATOR only, and has no tenant.

        `external_id` names the user at the user level. NotFound if the tenant has never seen them.
        """
        request = pb.SetFlagRequest(
            name=name, scope=flag_scope_to(scope), tenant=tenant, external_id=external_id, enabled=enabled
        )
        response = await self._transport.unary(self._stub.SetFlag, request, repeat=Repeat.SAFE)
        return flag_from(response.flag)

    async def clear_flag(
        self, name: str, scope: FlagScope, *, tenant: str = "", external_id: str = ""
    ) -> None:
        """Remove a feature flag from one level, so that the next one decides. It may be gone already."""
        request = pb.ClearFlagRequest(
            name=name, scope=flag_scope_to(scope), tenant=tenant, external_id=external_id
        )
        await self._transport.unary(self._stub.ClearFlag, request, repeat=Repeat.SAFE)

    async def job_stats(self) -> tuple[JobQueueStats, ...]:
        """How the background jobs are doing, by kind. OPERATOR only."""
        request = pb.GetJobStatsRequest()
        response = await self._transport.unary(self._stub.GetJobStats, request, repeat=Repeat.SAFE)
        return tuple(job_stats_from(message) for message in response.queues)

    def list_dead_jobs(self, *, kind: str = "", page_size: int = 0) -> AsyncIterator[DeadJob]:
        """All jobs that failed for good, or those of one kind, the newest first. OPERATOR only."""
        return every(partial(self.list_dead_jobs_page, kind=kind, page_size=page_size))

    async def list_dead_jobs_page(
        self, *, page_token: str = "", kind: str = "", page_size: int = 0
    ) -> Page[DeadJob]:
        """One page of dead jobs."""
        request = pb.ListDeadJobsRequest(page_size=page_size, page_token=page_token, kind=kind)
        response = await self._transport.unary(self._stub.ListDeadJobs, request, repeat=Repeat.SAFE)
        return Page(tuple(dead_job_from(message) for message in response.jobs), response.next_page_token)

    async def retry_dead_job(self, job_id: str) -> None:
        """Queue a dead job again. OPERATOR only."""
        request = pb.RetryDeadJobRequest(job_id=job_id)
        # Once queued it is dead no more, so a repeat would fail although the first was carried out.
        await self._transport.unary(self._stub.RetryDeadJob, request, repeat=Repeat.IF_REFUSED)

    async def server_info(self) -> ServerInfo:
        """What this server is and how it is set up."""
        request = pb.GetServerInfoRequest()
        response = await self._transport.unary(self._stub.GetServerInfo, request, repeat=Repeat.SAFE)
        return server_info_from(response)
