"""Users, keys, conversations, items, API keys, and what replicas tell each other."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INSTALLATION = "00000000-0000-0000-0000-000000000000"


def upgrade() -> None:
    op.create_table(
        "replicas",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("applied", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replicas")),
    )
    op.create_table(
        "signal_head",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signal_head")),
    )
    op.create_table(
        "signals",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("subject", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_signals")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("erased_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("tenant", "external_id", name=op.f("uq_users_tenant_external_id")),
    )
    op.create_table(
        "heads",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("last_event", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("memory_revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_heads_users")),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_heads")),
    )
    op.create_table(
        "user_keys",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.Column("root_key_id", sa.Text(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("superseded_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_user_keys_users")),
        sa.PrimaryKeyConstraint("user_id", "key_version", name=op.f("pk_user_keys")),
    )
    op.create_index(op.f("ix_user_keys_root_key_id"), "user_keys", ["root_key_id"], unique=False)
    op.create_index(
        "ix_user_keys_superseded",
        "user_keys",
        ["user_id"],
        unique=False,
        postgresql_where=sa.text("superseded_at IS NOT NULL AND wrapped_key IS NOT NULL"),
    )
    op.create_index(
        "ix_users_erasing",
        "users",
        ["id"],
        unique=False,
        postgresql_where=sa.text("erased_at IS NOT NULL AND external_id IS NOT NULL"),
    )
    op.create_table(
        "api_keys",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name_enc", sa.LargeBinary(), nullable=False),
        sa.Column("role", sa.SmallInteger(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_api_keys_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_api_keys_secret_hash")),
    )
    op.create_index(op.f("ix_api_keys_tenant_id"), "api_keys", ["tenant", "id"], unique=False)
    op.create_table(
        "conversations",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("title_enc", sa.LargeBinary(), nullable=False),
        sa.Column("metadata_enc", sa.LargeBinary(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("memory", sa.SmallInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("message_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("total_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_item_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("active_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_conversations_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_conversations")),
    )
    op.create_index(
        "ix_conversations_deleted_active_at",
        "conversations",
        ["user_id", "active_at", "id"],
        unique=False,
        postgresql_where=sa.text("kind = 1 AND deleted_at IS NOT NULL"),
    )
    op.create_index(
        "ix_conversations_deleted_at",
        "conversations",
        ["deleted_at"],
        unique=False,
        postgresql_where=sa.text("kind = 1 AND deleted_at IS NOT NULL"),
    )
    op.create_index(
        "ix_conversations_deleted_created_at",
        "conversations",
        ["user_id", "created_at", "id"],
        unique=False,
        postgresql_where=sa.text("kind = 1 AND deleted_at IS NOT NULL"),
    )
    op.create_index(
        "ix_conversations_live_active_at",
        "conversations",
        ["user_id", "active_at", "id"],
        unique=False,
        postgresql_where=sa.text("kind = 1 AND deleted_at IS NULL"),
    )
    op.create_index(
        "ix_conversations_live_created_at",
        "conversations",
        ["user_id", "created_at", "id"],
        unique=False,
        postgresql_where=sa.text("kind = 1 AND deleted_at IS NULL"),
    )
    op.create_table(
        "requests",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("response_enc", sa.LargeBinary(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_requests_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_requests")),
    )
    op.create_index(op.f("ix_requests_expires_at"), "requests", ["expires_at"], unique=False)
    op.create_table(
        "items",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("conversation_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("author_enc", sa.LargeBinary(), nullable=True),
        sa.Column("content_enc", sa.LargeBinary(), nullable=False),
        sa.Column("tool_enc", sa.LargeBinary(), nullable=True),
        sa.Column("token_count", sa.Integer(), nullable=False),
        sa.Column("turn_id", sa.Uuid(), nullable=True),
        sa.Column("step", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("agent_id", sa.Uuid(), nullable=True),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "conversation_id"],
            ["conversations.user_id", "conversations.id"],
            name=op.f("fk_items_conversations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_items_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_items")),
        sa.UniqueConstraint(
            "user_id", "conversation_id", "seq", name=op.f("uq_items_user_id_conversation_id_seq")
        ),
    )
    op.execute("INSERT INTO signal_head (id, last_seq) VALUES (1, 0)")
    op.execute(
        f"INSERT INTO users (id, tenant, external_id, created_at) VALUES ('{INSTALLATION}', '', '', now())"  # noqa: S608
    )
    op.execute(f"INSERT INTO heads (user_id) VALUES ('{INSTALLATION}')")  # noqa: S608
