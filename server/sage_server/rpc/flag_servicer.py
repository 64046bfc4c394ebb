"""The methods of AdminService about feature flags: decode, one call, encode."""

from __future__ import annotations

from uuid import UUID

from sage.v1 import admin_pb2
from sage.v1 import admin_service_pb2 as pb
from sage_server.domain.flags import Flag, FlagScope
from sage_server.domain.identity import Caller
from sage_server.domain.ids import INSTALLATION
from sage_server.domain.paging import page_size
from sage_server.ports.flag_store import FlagCursor, FlagPlace
from sage_server.rpc.mapping import to_timestamp
from sage_server.rpc.page_tokens import PageTokens
from sage_server.services.flags import FeatureFlags

_UUID_BYTES = 16


class FlagServicer:
    """For administrators, each in their own tenant, and for operators."""

    def __init__(self, flags: FeatureFlags, pages: PageTokens) -> None:
        self._flags = flags
        self._pages = pages

    async def list_flags(self, request: pb.ListFlagsRequest, caller: Caller) -> pb.ListFlagsResponse:
        """A page of what is set."""
        page = await self._flags.list(
            caller.role,
            FlagScope(request.scope) if request.scope else None,
            caller.tenant_named(request.tenant),
            page_size(request.page_size),
            await self._pages.read(INSTALLATION, request, _decode_cursor),
        )
        return pb.ListFlagsResponse(
            flags=[_to_flag(flag) for flag in page.rows],
            next_page_token=await self._pages.write(INSTALLATION, request, _encode_cursor(page.next)),
        )

    async def set_flag(self, request: pb.SetFlagRequest, caller: Caller) -> pb.SetFlagResponse:
        """A flag, from now on."""
        flag = await self._flags.set(
            caller.role, _place(request, caller), request.name, enabled=request.enabled
        )
        return pb.SetFlagResponse(flag=_to_flag(flag))

    async def clear_flag(self, request: pb.ClearFlagRequest, caller: Caller) -> pb.ClearFlagResponse:
        """A flag no more."""
        await self._flags.clear(caller.role, _place(request, caller), request.name)
        return pb.ClearFlagResponse()


def _place(request: pb.SetFlagRequest | pb.ClearFlagRequest, caller: Caller) -> FlagPlace:
    scope = FlagScope(request.scope)
    tenant = caller.tenant_named(request.tenant)
    return FlagPlace(scope, request.tenant if scope is FlagScope.GLOBAL else tenant, request.external_id)


def _encode_cursor(cursor: FlagCursor | None) -> bytes | None:
    if cursor is None:
        return None
    return cursor.user_id.bytes + f"{cursor.name}\0{cursor.tenant}".encode()


def _decode_cursor(position: bytes) -> FlagCursor:
    name, _, tenant = position[_UUID_BYTES:].decode().partition("\0")
    return FlagCursor(tenant, UUID(bytes=position[:_UUID_BYTES]), name)


def _to_flag(flag: Flag) -> admin_pb2.Flag:
    return admin_pb2.Flag(
        name=flag.name,
        scope=admin_pb2.FlagScope.ValueType(flag.scope),
        tenant=flag.tenant,
        external_id=flag.external_id,
        enabled=flag.enabled,
        update_time=to_timestamp(flag.updated_at),
    )
