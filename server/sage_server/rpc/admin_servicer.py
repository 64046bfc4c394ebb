"""AdminService: decode, one call, encode."""

from __future__ import annotations

from uuid import UUID

from sage.v1 import admin_pb2
from sage.v1 import admin_service_pb2 as pb
from sage_server.domain.identity import ApiKey, Caller, Role, permission_denied
from sage_server.domain.ids import INSTALLATION
from sage_server.domain.paging import page_size
from sage_server.ports.stores import Replica
from sage_server.rpc.mapping import from_timestamp, once, to_timestamp
from sage_server.rpc.page_tokens import PageTokens, decode_id, encode_id
from sage_server.services.api_keys import ApiKeys
from sage_server.services.key_rotation import KeyRotation
from sage_server.services.server_info import ServerInformation
from sage_server.services.users import Users


class AdminServicer:
    """The methods that this server has; what is missing here answers UNIMPLEMENTED."""

    def __init__(
        self,
        *,
        api_keys: ApiKeys,
        users: Users,
        rotation: KeyRotation,
        information: ServerInformation,
        pages: PageTokens,
    ) -> None:
        self._api_keys = api_keys
        self._users = users
        self._rotation = rotation
        self._information = information
        self._pages = pages

    async def create_api_key(
        self, request: pb.CreateApiKeyRequest, caller: Caller
    ) -> pb.CreateApiKeyResponse:
        """A key and its secret."""
        role = Role(request.role)
        if role > caller.role:
            raise permission_denied(role)
        tenant = caller.tenant_named(request.tenant)
        key, secret = await self._api_keys.create(
            tenant=tenant,
            name=request.name,
            role=role,
            expires_at=from_timestamp(request, "expire_time"),
            # The kept answer holds the secret: another tenant's admin must not get it with the same body.
            once=once(request, tenant),
        )
        return pb.CreateApiKeyResponse(api_key=_to_api_key(key), secret=secret)

    async def list_api_keys(self, request: pb.ListApiKeysRequest, caller: Caller) -> pb.ListApiKeysResponse:
        """A page of keys."""
        page = await self._api_keys.list(
            caller.tenant_named(request.tenant),
            page_size(request.page_size),
            await self._pages.read(INSTALLATION, request, decode_id),
        )
        return pb.ListApiKeysResponse(
            api_keys=[_to_api_key(key) for key in page.rows],
            next_page_token=await self._pages.write(INSTALLATION, request, encode_id(page.next)),
        )

    async def revoke_api_key(
        self, request: pb.RevokeApiKeyRequest, caller: Caller
    ) -> pb.RevokeApiKeyResponse:
        """A key that opens nothing more."""
        key = await self._api_keys.revoke(UUID(request.api_key_id), tenant=caller.tenant, role=caller.role)
        return pb.RevokeApiKeyResponse(api_key=_to_api_key(key))

    async def get_user(self, request: pb.GetUserRequest, caller: Caller) -> pb.GetUserResponse:
        """One user."""
        found = await self._users.get(caller.tenant_named(request.tenant), request.external_id)
        user = admin_pb2.User(
            id=str(found.user.id),
            tenant=found.user.tenant,
            external_id=found.user.external_id,
            create_time=to_timestamp(found.user.created_at),
            key_version=found.key_version,
            key_rotation_pending=found.key_rotation_pending,
            conversation_count=found.conversation_count,
            item_count=found.item_count,
        )
        return pb.GetUserResponse(user=user)

    async def rotate_user_key(
        self, request: pb.RotateUserKeyRequest, caller: Caller
    ) -> pb.RotateUserKeyResponse:
        """A new key; the worker seals the old rows again."""
        _, version = await self._rotation.rotate_user(
            caller.tenant_named(request.tenant), request.external_id
        )
        return pb.RotateUserKeyResponse(key_version=version)

    async def erase_user(self, request: pb.EraseUserRequest, caller: Caller) -> pb.EraseUserResponse:
        """Everything of a user."""
        receipt = await self._users.erase(caller.tenant_named(request.tenant), request.external_id)
        return pb.EraseUserResponse(
            tables=[
                admin_pb2.ErasedTable(table=table, rows=rows)
                for table, rows in sorted(receipt.rows_by_table.items())
            ],
            erase_time=to_timestamp(receipt.erased_at),
            replicas_confirmed=receipt.confirmed,
            replicas_unconfirmed=receipt.unconfirmed,
        )

    async def rotate_root_key(
        self, _request: pb.RotateRootKeyRequest, _caller: Caller
    ) -> pb.RotateRootKeyResponse:
        """A new root key around every user key."""
        root_key_id, rewrapped = await self._rotation.rotate_root()
        return pb.RotateRootKeyResponse(root_key_id=root_key_id, rewrapped_keys=rewrapped)

    async def get_server_info(
        self, _request: pb.GetServerInfoRequest, _caller: Caller
    ) -> pb.GetServerInfoResponse:
        """What this server is."""
        info = await self._information.get()
        return pb.GetServerInfoResponse(
            version=info.me.version,
            replica=_to_replica(info.me),
            replicas=[_to_replica(replica) for replica in info.replicas],
            database="embedded" if info.embedded else "external",
            database_version=info.database.version,
            schema_revision=info.database.schema_revision,
            root_key_id=info.root_key_id,
            authentication="required" if info.authentication_required else "none",
        )


def _to_api_key(key: ApiKey) -> admin_pb2.ApiKey:
    return admin_pb2.ApiKey(
        id=str(key.id),
        tenant=key.tenant,
        name=key.name,
        role=admin_pb2.ApiKeyRole.ValueType(key.role),
        prefix=key.prefix,
        create_time=to_timestamp(key.created_at),
        expire_time=to_timestamp(key.expires_at),
        revoke_time=to_timestamp(key.revoked_at),
    )


def _to_replica(replica: Replica) -> admin_pb2.Replica:
    return admin_pb2.Replica(
        id=str(replica.id),
        start_time=to_timestamp(replica.started_at),
        seen_time=to_timestamp(replica.seen_at),
        version=replica.version,
    )
