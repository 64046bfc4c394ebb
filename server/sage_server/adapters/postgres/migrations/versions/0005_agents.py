"""Agents, turns, events and summaries."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("turn_id", sa.Uuid(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Uuid(), nullable=True),
        sa.Column("conversation_id", sa.Uuid(), nullable=True),
        sa.Column("channel", sa.SmallInteger(), nullable=False),
        sa.Column("item_seq", sa.BigInteger(), nullable=True),
        sa.Column("queue_position", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("payload_enc", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_events_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "seq", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_expires_at"), "events", ["expires_at"], unique=False)
    op.create_index(
        op.f("ix_events_user_id_turn_id_seq"), "events", ["user_id", "turn_id", "seq"], unique=False
    )
    op.create_table(
        "agents",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("conversation_id", sa.Uuid(), nullable=False),
        sa.Column("name_tag", sa.LargeBinary(), nullable=False),
        sa.Column("profile_enc", sa.LargeBinary(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("memory_mode", sa.SmallInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_turn_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "conversation_id"],
            ["conversations.user_id", "conversations.id"],
            name=op.f("fk_agents_conversations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_agents_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_agents")),
        sa.UniqueConstraint("user_id", "conversation_id", name=op.f("uq_agents_user_id_conversation_id")),
        sa.UniqueConstraint("user_id", "name_tag", name=op.f("uq_agents_user_id_name_tag")),
    )
    op.create_table(
        "conversation_summaries",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("conversation_id", sa.Uuid(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("previous_id", sa.Uuid(), nullable=True),
        sa.Column("from_seq", sa.BigInteger(), nullable=False),
        sa.Column("to_seq", sa.BigInteger(), nullable=False),
        sa.Column("message_count", sa.BigInteger(), nullable=False),
        sa.Column("token_count", sa.Integer(), nullable=False),
        sa.Column("content_enc", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "conversation_id"],
            ["conversations.user_id", "conversations.id"],
            name=op.f("fk_conversation_summaries_conversations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_conversation_summaries_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_conversation_summaries")),
        sa.UniqueConstraint(
            "user_id",
            "conversation_id",
            "epoch",
            name=op.f("uq_conversation_summaries_user_id_conversation_id_epoch"),
        ),
    )
    op.create_table(
        "turns",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("conversation_id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Uuid(), nullable=False),
        sa.Column("own_thread", sa.Boolean(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("origin", sa.SmallInteger(), nullable=False),
        sa.Column("store", sa.Boolean(), nullable=False),
        sa.Column("tainted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("lease_owner", sa.Uuid(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("step", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("message_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tool_call_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("memory_writes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("embedding_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("model_calls", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("memory_revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("stop_reason", sa.SmallInteger(), nullable=True),
        sa.Column("error_reason", sa.Text(), nullable=True),
        sa.Column("retryable", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("cancel_cause", sa.SmallInteger(), nullable=True),
        sa.Column("request_id", sa.Uuid(), nullable=True),
        sa.Column("input_item_id", sa.Uuid(), nullable=True),
        sa.Column("parent_turn_id", sa.Uuid(), nullable=True),
        sa.Column("first_event", sa.BigInteger(), nullable=False),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id", "conversation_id"],
            ["conversations.user_id", "conversations.id"],
            name=op.f("fk_turns_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_turns")),
    )
    op.create_index(
        "ix_turns_lease", "turns", ["lease_until"], unique=False, postgresql_where=sa.text("status = 2")
    )
    op.create_index(
        "ix_turns_tainted",
        "turns",
        ["user_id", "conversation_id"],
        unique=False,
        postgresql_where=sa.text("tainted"),
    )
    op.create_index(
        "ix_turns_queued",
        "turns",
        ["user_id", "conversation_id", "id"],
        unique=False,
        postgresql_where=sa.text("status = 1"),
    )
    op.create_index(
        op.f("ix_turns_user_id_conversation_id_id"),
        "turns",
        ["user_id", "conversation_id", "id"],
        unique=False,
    )
    op.create_index(
        "uq_turns_running",
        "turns",
        ["user_id", "conversation_id"],
        unique=True,
        postgresql_where=sa.text("status = 2"),
    )
    op.add_column(
        "heads", sa.Column("pruned_event", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column(
        "items", sa.Column("recalled", sa.Boolean(), server_default=sa.text("true"), nullable=False)
    )
    op.add_column("memories", sa.Column("thread_agent_id", sa.Uuid(), nullable=True))
