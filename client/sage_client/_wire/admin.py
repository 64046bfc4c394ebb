"""What an administrator sees."""

from __future__ import annotations

from sage.v1 import admin_pb2, admin_service_pb2
from sage_client._wire.enums import flag_scope_from, role_from
from sage_client._wire.times import time_from
from sage_client.models.admin import (
    ApiKey,
    DeadJob,
    Erasure,
    Flag,
    JobQueueStats,
    Replica,
    ServerInfo,
    User,
)


def api_key_from(message: admin_pb2.ApiKey) -> ApiKey:
    """An API key."""
    return ApiKey(
        id=message.id,
        tenant=message.tenant,
        name=message.name,
        role=role_from(message.role),
        prefix=message.prefix,
        create_time=time_from(message.create_time),
        expire_time=time_from(message.expire_time) if message.HasField("expire_time") else None,
        revoke_time=time_from(message.revoke_time) if message.HasField("revoke_time") else None,
    )


def user_from(message: admin_pb2.User) -> User:
    """A user."""
    return User(
        id=message.id,
        tenant=message.tenant,
        external_id=message.external_id,
        create_time=time_from(message.create_time),
        key_version=message.key_version,
        key_rotation_pending=message.key_rotation_pending,
        conversation_count=message.conversation_count,
        item_count=message.item_count,
    )


def erasure_from(message: admin_service_pb2.EraseUserResponse) -> Erasure:
    """What an erasure did."""
    return Erasure(
        rows_by_table={erased.table: erased.rows for erased in message.tables},
        erase_time=time_from(message.erase_time),
        replicas_confirmed=message.replicas_confirmed,
        replicas_unconfirmed=message.replicas_unconfirmed,
    )


def server_info_from(message: admin_service_pb2.GetServerInfoResponse) -> ServerInfo:
    """What a server is."""
    return ServerInfo(
        version=message.version,
        replica=_replica_from(message.replica),
        replicas=tuple(_replica_from(replica) for replica in message.replicas),
        database=message.database,
        database_version=message.database_version,
        schema_revision=message.schema_revision,
        root_key_id=message.root_key_id,
        authentication=message.authentication,
    )


def flag_from(message: admin_pb2.Flag) -> Flag:
    """A feature flag at one level."""
    return Flag(
        name=message.name,
        scope=flag_scope_from(message.scope),
        tenant=message.tenant,
        external_id=message.external_id,
        enabled=message.enabled,
        update_time=time_from(message.update_time),
    )


def job_stats_from(message: admin_pb2.JobQueueStats) -> JobQueueStats:
    """How one kind of job is doing."""
    return JobQueueStats(
        kind=message.kind,
        queued=message.queued,
        running=message.running,
        dead=message.dead,
        lag_seconds=message.lag_seconds,
    )


def dead_job_from(message: admin_pb2.DeadJob) -> DeadJob:
    """A job that failed for good."""
    return DeadJob(
        id=message.id,
        kind=message.kind,
        attempts=message.attempts,
        error_type=message.error_type,
        create_time=time_from(message.create_time),
        fail_time=time_from(message.fail_time),
    )


def _replica_from(message: admin_pb2.Replica) -> Replica:
    return Replica(
        id=message.id,
        start_time=time_from(message.start_time),
        seen_time=time_from(message.seen_time),
        version=message.version,
    )
