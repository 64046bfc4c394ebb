"""The tables.

Rules that hold for every table of a user's data, so that later ones get them for free:
- `user_id` comes first in the primary key, and foreign keys stay within the user (the schema shards).
- A column whose name ends in `_enc` is sealed and says for which purpose. A row is sealed whole, with one
  key version, which it names; a foreign key holds that version, so a key cannot go while a row needs it,
  and a writer with a key that is gone cannot write.
- `tags`, and columns whose names end in `_tag`, hold labels, sealed so that equal ones are equal bytes (of
  one key version: whoever looks one up while a rotation is under way must look for every version of it).
- Erasure and key rotation find their work in this metadata.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    literal_column,
    text,
)

from sage_server.domain.conversations import ConversationKind
from sage_server.domain.memories import MemorySource
from sage_server.domain.turns import TurnStatus
from sage_server.ports.keys import Cell, Purpose

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _time(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _sealed(name: str, purpose: Purpose = Purpose.CONTENT, *, nullable: bool = False) -> Column[object]:
    return Column(name, LargeBinary, nullable=nullable, info={"purpose": purpose})


def _label(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, LargeBinary, nullable=nullable, info={"purpose": Purpose.TAGS})


def _labels(name: str) -> Column[object]:
    """NULL if there are none, which keeps the index over them small."""
    return Column(name, ARRAY(LargeBinary), info={"purpose": Purpose.TAGS})


def _key_version() -> tuple[Column[object], ForeignKeyConstraint]:
    return (
        Column("key_version", Integer, nullable=False),
        ForeignKeyConstraint(["user_id", "key_version"], ["user_keys.user_id", "user_keys.key_version"]),
    )


def cell(column: Column[object]) -> Cell:
    """The place that a sealed column is."""
    return Cell(column.table.name, column.name, column.info["purpose"])


users = Table(
    "users",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("external_id", Text),  # NULL once erased, so that the same person can start afresh
    _time("created_at"),
    _time("erased_at", nullable=True),
    UniqueConstraint("tenant", "external_id"),
)
ERASING = users.c.erased_at.is_not(None) & users.c.external_id.is_not(None)
Index("ix_users_erasing", users.c.id, postgresql_where=ERASING)

user_keys = Table(
    "user_keys",
    metadata,
    Column("user_id", Uuid, ForeignKey(users.c.id), nullable=False),
    Column("key_version", Integer, nullable=False),
    Column("root_key_id", Text, nullable=False),
    Column("wrapped_key", LargeBinary),  # NULL once destroyed; the row stays until no other needs it
    _time("created_at"),
    _time("superseded_at", nullable=True),
    PrimaryKeyConstraint("user_id", "key_version"),
    Index(None, "root_key_id"),
)
SUPERSEDED = user_keys.c.superseded_at.is_not(None) & user_keys.c.wrapped_key.is_not(None)
Index("ix_user_keys_superseded", user_keys.c.user_id, postgresql_where=SUPERSEDED)

heads = Table(
    "heads",
    metadata,
    Column("user_id", Uuid, ForeignKey(users.c.id), primary_key=True),
    Column("last_event", BigInteger, nullable=False, server_default=text("0")),
    Column("pruned_event", BigInteger, nullable=False, server_default=text("0")),
    Column("memory_revision", BigInteger, nullable=False, server_default=text("0")),
    Column("pruned_revision", BigInteger, nullable=False, server_default=text("0")),
    Column("embedding_model", Text),  # what search uses; NULL while there is no memory
    Column("dimensions", Integer),
    Column("vector_slot", SmallInteger, nullable=False, server_default=text("0")),
)

conversations = Table(
    "conversations",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    _sealed("title_enc"),
    _sealed("metadata_enc"),
    Column("private", Boolean, nullable=False),
    Column("memory", SmallInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("message_count", BigInteger, nullable=False, server_default=text("0")),
    Column("total_tokens", BigInteger, nullable=False, server_default=text("0")),
    _time("last_item_at", nullable=True),
    _time("active_at"),
    _time("created_at"),
    _time("updated_at"),
    _time("deleted_at", nullable=True),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
)

# A literal, not a parameter: only so can the planner match the partial indexes in a prepared statement.
IS_THREAD = conversations.c.kind == literal_column(str(int(ConversationKind.THREAD)))
_LIVE = IS_THREAD & conversations.c.deleted_at.is_(None)
_DELETED = IS_THREAD & conversations.c.deleted_at.is_not(None)
for _name, _where in (("live", _LIVE), ("deleted", _DELETED)):
    for _order in ("created_at", "active_at"):
        Index(
            f"ix_conversations_{_name}_{_order}",
            conversations.c.user_id,
            conversations.c[_order],
            conversations.c.id,
            postgresql_where=_where,
        )
Index("ix_conversations_deleted_at", conversations.c.deleted_at, postgresql_where=_DELETED)

items = Table(
    "items",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("conversation_id", Uuid, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    _sealed("author_enc", nullable=True),
    _sealed("content_enc"),
    _sealed("tool_enc", nullable=True),
    Column("token_count", Integer, nullable=False),
    Column("turn_id", Uuid),
    Column("step", Integer, nullable=False, server_default=text("0")),
    Column("agent_id", Uuid),
    Column("hidden", Boolean, nullable=False),
    Column("recalled", Boolean, nullable=False, server_default=text("true")),  # whether search may know it
    _time("created_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    UniqueConstraint("user_id", "conversation_id", "seq"),
    ForeignKeyConstraint(
        ["user_id", "conversation_id"], ["conversations.user_id", "conversations.id"], ondelete="CASCADE"
    ),
)

memory_blocks = Table(
    "memory_blocks",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("agent_id", Uuid),  # NULL for a block that all agents share
    _sealed("label_enc"),
    _label("label_tag"),
    _sealed("description_enc"),
    _sealed("value_enc"),
    Column("char_limit", Integer, nullable=False),
    Column("read_only", Boolean, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("base_id", Uuid),  # of an agent's own version: the shared block that it was made from,
    Column("base_revision", BigInteger),  # and the revision that this had
    _time("created_at"),
    _time("updated_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    UniqueConstraint("user_id", "agent_id", "label_tag", postgresql_nulls_not_distinct=True),
)

block_revisions = Table(
    "block_revisions",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("block_id", Uuid, nullable=False),
    Column("revision", BigInteger, nullable=False),
    _sealed("description_enc"),
    _sealed("value_enc"),
    Column("char_limit", Integer, nullable=False),
    Column("read_only", Boolean, nullable=False),
    Column("actor", SmallInteger, nullable=False),
    Column("agent_id", Uuid),
    Column("turn_id", Uuid),
    Column("restored_revision", BigInteger),
    _time("created_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    UniqueConstraint("user_id", "block_id", "revision"),
    ForeignKeyConstraint(
        ["user_id", "block_id"], ["memory_blocks.user_id", "memory_blocks.id"], ondelete="CASCADE"
    ),
)

memories = Table(
    "memories",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("source", SmallInteger, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    Column("agent_id", Uuid),
    Column("conversation_id", Uuid),
    Column("thread_agent_id", Uuid),  # the agent whose own thread the conversation is
    Column("item_id", Uuid),
    Column("item_seq", BigInteger),
    Column("document_id", Uuid),
    Column("turn_id", Uuid),
    Column("chunk_index", Integer, nullable=False, server_default=text("0")),
    Column("char_start", BigInteger, nullable=False, server_default=text("0")),
    Column("char_end", BigInteger, nullable=False, server_default=text("0")),
    Column("trust", SmallInteger, nullable=False),
    _sealed("content_enc", nullable=True),  # NULL once deleted
    _sealed("origin_enc", nullable=True),  # the author of a message, the title of a document
    _sealed("metadata_enc", nullable=True),
    _labels("tags"),
    # Two places for vectors: search uses one while the other is filled for another model.
    Column("model_0", Text),
    _sealed("vector_0_enc", Purpose.VECTOR, nullable=True),
    Column("model_1", Text),
    _sealed("vector_1_enc", Purpose.VECTOR, nullable=True),
    _time("created_at"),
    _time("updated_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    Index(None, "user_id", "revision"),
)
IS_LIVE = memories.c.state == literal_column("0")
Index("ix_memories_live", memories.c.user_id, memories.c.created_at, memories.c.id, postgresql_where=IS_LIVE)
IS_ARCHIVAL = memories.c.source == literal_column(str(int(MemorySource.ARCHIVAL)))
Index(
    "ix_memories_overlay",
    memories.c.user_id,
    memories.c.agent_id,
    memories.c.updated_at,
    memories.c.id,
    postgresql_where=IS_LIVE & IS_ARCHIVAL & memories.c.agent_id.is_not(None),
)
IS_GONE = memories.c.state != literal_column("0")
Index("ix_memories_gone", memories.c.updated_at, postgresql_where=IS_GONE)
Index(
    "ix_memories_tags", memories.c.tags, postgresql_using="gin", postgresql_where=memories.c.tags.is_not(None)
)
Index(
    "ix_memories_conversation",
    memories.c.user_id,
    memories.c.conversation_id,
    postgresql_where=memories.c.conversation_id.is_not(None),
)
Index(
    "ix_memories_document",
    memories.c.user_id,
    memories.c.document_id,
    postgresql_where=memories.c.document_id.is_not(None),
)

documents = Table(
    "documents",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("agent_id", Uuid),
    Column("status", SmallInteger, nullable=False),
    Column("failure", Text),  # the name of a reason
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    Column("media_type", Text, nullable=False),
    Column("chunk_count", Integer, nullable=False, server_default=text("0")),
    Column("byte_count", BigInteger, nullable=False),
    Column("char_count", BigInteger, nullable=False),
    Column("trust", SmallInteger, nullable=False),
    _sealed("details_enc"),  # title, external id and metadata
    _sealed("content_enc", nullable=True),  # the text, only while it is taken in
    _label("external_tag", nullable=True),
    _label("content_tag"),
    _labels("tags"),
    _time("created_at"),
    _time("updated_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    UniqueConstraint("user_id", "external_tag"),
    Index(None, "user_id", "content_tag"),
    Index(None, "user_id", "created_at", "id"),
)

scratchpads = Table(
    "scratchpads",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),  # the conversation's
    _sealed("items_enc"),
    Column("version", BigInteger, nullable=False),
    _time("updated_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    ForeignKeyConstraint(
        ["user_id", "id"], ["conversations.user_id", "conversations.id"], ondelete="CASCADE"
    ),
)

agents = Table(
    "agents",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("conversation_id", Uuid, nullable=False),
    _label("name_tag"),
    _sealed("profile_enc", Purpose.PROMPT),  # its name and every setting that SQL need not see
    Column("enabled", Boolean, nullable=False),
    Column("memory_mode", SmallInteger, nullable=False),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    _time("created_at"),
    _time("updated_at"),
    _time("last_turn_at", nullable=True),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    UniqueConstraint("user_id", "name_tag"),
    UniqueConstraint("user_id", "conversation_id"),
    ForeignKeyConstraint(
        ["user_id", "conversation_id"], ["conversations.user_id", "conversations.id"], ondelete="CASCADE"
    ),
)

turns = Table(
    "turns",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("conversation_id", Uuid, nullable=False),
    Column("agent_id", Uuid, nullable=False),
    Column("own_thread", Boolean, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("origin", SmallInteger, nullable=False),
    Column("store", Boolean, nullable=False),
    Column("tainted", Boolean, nullable=False, server_default=text("false")),
    Column("lease_owner", Uuid),
    _time("lease_until", nullable=True),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("step", Integer, nullable=False, server_default=text("0")),
    *(
        Column(name, Integer, nullable=False, server_default=text("0"))
        for name in ("message_count", "tool_call_count", "memory_writes")
    ),
    *(
        Column(name, BigInteger, nullable=False, server_default=text("0"))
        for name in ("prompt_tokens", "completion_tokens", "embedding_tokens", "model_calls")
    ),
    Column("memory_revision", BigInteger, nullable=False, server_default=text("0")),
    Column("stop_reason", SmallInteger),
    Column("error_reason", Text),  # the name of a reason
    Column("retryable", Boolean, nullable=False, server_default=text("false")),
    Column("cancel_cause", SmallInteger),
    Column("request_id", Uuid),
    Column("input_item_id", Uuid),
    Column("parent_turn_id", Uuid),
    Column("first_event", BigInteger, nullable=False),
    Column("last_event", BigInteger, nullable=False),
    _time("created_at"),
    _time("started_at", nullable=True),
    _time("ended_at", nullable=True),
    PrimaryKeyConstraint("user_id", "id"),
    ForeignKeyConstraint(
        ["user_id", "conversation_id"], ["conversations.user_id", "conversations.id"], ondelete="CASCADE"
    ),
    Index(None, "user_id", "conversation_id", "id"),
)
IS_QUEUED = turns.c.status == literal_column(str(int(TurnStatus.QUEUED)))
IS_RUNNING = turns.c.status == literal_column(str(int(TurnStatus.RUNNING)))
# One turn at a time in a thread, whatever the replicas believe.
Index("uq_turns_running", turns.c.user_id, turns.c.conversation_id, unique=True, postgresql_where=IS_RUNNING)
Index("ix_turns_lease", turns.c.lease_until, postgresql_where=IS_RUNNING)
Index("ix_turns_tainted", turns.c.user_id, turns.c.conversation_id, postgresql_where=turns.c.tainted)
Index("ix_turns_queued", turns.c.user_id, turns.c.conversation_id, turns.c.id, postgresql_where=IS_QUEUED)

events = Table(
    "events",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("turn_id", Uuid),
    Column("step", Integer, nullable=False),
    Column("agent_id", Uuid),
    Column("conversation_id", Uuid),  # NULL in an agent's own thread
    Column("channel", SmallInteger, nullable=False),
    # What the statement that stores an event hands out, and so cannot be sealed with the rest.
    Column("item_seq", BigInteger),
    Column("queue_position", Integer, nullable=False, server_default=text("0")),
    _sealed("payload_enc", Purpose.EVENT),
    _time("created_at"),
    _time("expires_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "seq"),
    Index(None, "user_id", "turn_id", "seq"),
    Index(None, "expires_at"),
)

conversation_summaries = Table(
    "conversation_summaries",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("conversation_id", Uuid, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("previous_id", Uuid),
    Column("from_seq", BigInteger, nullable=False),
    Column("to_seq", BigInteger, nullable=False),
    Column("message_count", BigInteger, nullable=False),
    Column("token_count", Integer, nullable=False),
    _sealed("content_enc"),
    _time("created_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    # Who writes an epoch that is there already comes too late.
    UniqueConstraint("user_id", "conversation_id", "epoch"),
    ForeignKeyConstraint(
        ["user_id", "conversation_id"], ["conversations.user_id", "conversations.id"], ondelete="CASCADE"
    ),
)

usage_records = Table(
    "usage_records",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("day", Date, nullable=False),
    Column("model", Text, nullable=False),
    Column("purpose", SmallInteger, nullable=False),
    *(
        Column(name, BigInteger, nullable=False)
        for name in ("calls", "prompt_tokens", "completion_tokens", "embedding_tokens")
    ),
    PrimaryKeyConstraint("user_id", "day", "model", "purpose"),
)

requests = Table(
    "requests",
    metadata,
    Column("user_id", Uuid, nullable=False),
    Column("id", Uuid, nullable=False),
    _sealed("response_enc"),
    Column("ordinal", BigInteger),  # a number in the answer that the statement itself handed out
    _time("expires_at"),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    Index(None, "expires_at"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("user_id", Uuid, nullable=False),  # the installation's: API keys belong to no user
    Column("id", Uuid, nullable=False),
    Column("tenant", Text, nullable=False),
    _sealed("name_enc"),
    Column("role", SmallInteger, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("secret_hash", LargeBinary, nullable=False, unique=True),
    _time("created_at"),
    _time("expires_at", nullable=True),
    _time("revoked_at", nullable=True),
    *_key_version(),
    PrimaryKeyConstraint("user_id", "id"),
    Index(None, "tenant", "id"),
)

flags = Table(
    "flags",
    metadata,
    # The installation's at the global level and at a tenant's.
    Column("user_id", Uuid, ForeignKey(users.c.id), nullable=False),
    Column("tenant", Text, nullable=False),  # empty at the global level
    Column("name", Text, nullable=False),  # one that the code knows
    Column("enabled", Boolean, nullable=False),
    _time("updated_at"),
    PrimaryKeyConstraint("user_id", "tenant", "name"),
    Index(None, "tenant", "user_id", "name"),
)

flag_head = Table(
    "flag_head",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
)

replicas = Table(
    "replicas",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("version", Text, nullable=False),
    Column("applied", BigInteger, nullable=False),
    _time("started_at"),
    _time("seen_at"),
)

signals = Table(
    "signals",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("subject", Uuid, nullable=False),
    _time("created_at"),
)

signal_head = Table(
    "signal_head",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
)


def sealed_tables() -> list[Table]:
    """Tables with sealed columns, every one of them with `user_id`, `id` and `key_version`."""
    return [table for table in metadata.sorted_tables if sealed_columns(table)]


def sealed_columns(table: Table) -> list[Column[object]]:
    """The sealed columns of a table, all but labels."""
    return [column for column in table.columns if column.info.get("purpose") not in (None, Purpose.TAGS)]


def label_columns(table: Table) -> list[Column[object]]:
    """The columns that hold labels, one or several."""
    return [column for column in table.columns if column.info.get("purpose") is Purpose.TAGS]


def user_tables() -> list[Table]:
    """Tables that carry `user_id`, in an order in which their rows can be deleted."""
    return [table for table in reversed(metadata.sorted_tables) if "user_id" in table.c]
