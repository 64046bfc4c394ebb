"""Core memory, memories, documents, scratchpads and usage."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "usage_records",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("purpose", sa.SmallInteger(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("embedding_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "day", "model", "purpose", name=op.f("pk_usage_records")),
    )
    op.create_table(
        "documents",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Uuid(), nullable=True),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("chunk_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("byte_count", sa.BigInteger(), nullable=False),
        sa.Column("char_count", sa.BigInteger(), nullable=False),
        sa.Column("trust", sa.SmallInteger(), nullable=False),
        sa.Column("details_enc", sa.LargeBinary(), nullable=False),
        sa.Column("content_enc", sa.LargeBinary(), nullable=True),
        sa.Column("external_tag", sa.LargeBinary(), nullable=True),
        sa.Column("content_tag", sa.LargeBinary(), nullable=False),
        sa.Column("tags", sa.ARRAY(sa.LargeBinary()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_documents_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_documents")),
        sa.UniqueConstraint("user_id", "external_tag", name=op.f("uq_documents_user_id_external_tag")),
    )
    op.create_index(
        op.f("ix_documents_user_id_content_tag"), "documents", ["user_id", "content_tag"], unique=False
    )
    op.create_index(
        op.f("ix_documents_user_id_created_at_id"), "documents", ["user_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "memories",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("source", sa.SmallInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("agent_id", sa.Uuid(), nullable=True),
        sa.Column("conversation_id", sa.Uuid(), nullable=True),
        sa.Column("item_id", sa.Uuid(), nullable=True),
        sa.Column("item_seq", sa.BigInteger(), nullable=True),
        sa.Column("document_id", sa.Uuid(), nullable=True),
        sa.Column("turn_id", sa.Uuid(), nullable=True),
        sa.Column("chunk_index", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("char_start", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("char_end", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("trust", sa.SmallInteger(), nullable=False),
        sa.Column("content_enc", sa.LargeBinary(), nullable=True),
        sa.Column("origin_enc", sa.LargeBinary(), nullable=True),
        sa.Column("metadata_enc", sa.LargeBinary(), nullable=True),
        sa.Column("tags", sa.ARRAY(sa.LargeBinary()), nullable=True),
        sa.Column("model_0", sa.Text(), nullable=True),
        sa.Column("vector_0_enc", sa.LargeBinary(), nullable=True),
        sa.Column("model_1", sa.Text(), nullable=True),
        sa.Column("vector_1_enc", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_memories_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_memories")),
    )
    op.create_index(
        "ix_memories_document",
        "memories",
        ["user_id", "document_id"],
        unique=False,
        postgresql_where=sa.text("document_id IS NOT NULL"),
    )
    op.create_index(
        "ix_memories_live",
        "memories",
        ["user_id", "created_at", "id"],
        unique=False,
        postgresql_where=sa.text("state = 0"),
    )
    op.create_index(
        "ix_memories_tags",
        "memories",
        ["tags"],
        unique=False,
        postgresql_using="gin",
        postgresql_where=sa.text("tags IS NOT NULL"),
    )
    op.create_index(op.f("ix_memories_user_id_revision"), "memories", ["user_id", "revision"], unique=False)
    op.create_index(
        "ix_memories_gone",
        "memories",
        ["updated_at"],
        unique=False,
        postgresql_where=sa.text("state != 0"),
    )
    op.create_index(
        "ix_memories_conversation",
        "memories",
        ["user_id", "conversation_id"],
        unique=False,
        postgresql_where=sa.text("conversation_id IS NOT NULL"),
    )
    op.create_table(
        "memory_blocks",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Uuid(), nullable=True),
        sa.Column("label_enc", sa.LargeBinary(), nullable=False),
        sa.Column("label_tag", sa.LargeBinary(), nullable=False),
        sa.Column("description_enc", sa.LargeBinary(), nullable=False),
        sa.Column("value_enc", sa.LargeBinary(), nullable=False),
        sa.Column("char_limit", sa.Integer(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_memory_blocks_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_memory_blocks")),
        sa.UniqueConstraint(
            "user_id",
            "agent_id",
            "label_tag",
            name=op.f("uq_memory_blocks_user_id_agent_id_label_tag"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "block_revisions",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("block_id", sa.Uuid(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("description_enc", sa.LargeBinary(), nullable=False),
        sa.Column("value_enc", sa.LargeBinary(), nullable=False),
        sa.Column("char_limit", sa.Integer(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("actor", sa.SmallInteger(), nullable=False),
        sa.Column("agent_id", sa.Uuid(), nullable=True),
        sa.Column("turn_id", sa.Uuid(), nullable=True),
        sa.Column("restored_revision", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "block_id"],
            ["memory_blocks.user_id", "memory_blocks.id"],
            name=op.f("fk_block_revisions_memory_blocks"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_block_revisions_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_block_revisions")),
        sa.UniqueConstraint(
            "user_id", "block_id", "revision", name=op.f("uq_block_revisions_user_id_block_id_revision")
        ),
    )
    op.create_table(
        "scratchpads",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("items_enc", sa.LargeBinary(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id", "id"],
            ["conversations.user_id", "conversations.id"],
            name=op.f("fk_scratchpads_conversations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id", "key_version"],
            ["user_keys.user_id", "user_keys.key_version"],
            name=op.f("fk_scratchpads_user_keys"),
        ),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_scratchpads")),
    )
    op.add_column(
        "heads", sa.Column("pruned_revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column("heads", sa.Column("embedding_model", sa.Text(), nullable=True))
    op.add_column("heads", sa.Column("dimensions", sa.Integer(), nullable=True))
    op.add_column(
        "heads", sa.Column("vector_slot", sa.SmallInteger(), server_default=sa.text("0"), nullable=False)
    )
    # Ciphertext cannot be compressed: do not let Postgres try.
    for table, column in (
        ("memories", "content_enc"),
        ("memories", "vector_0_enc"),
        ("memories", "vector_1_enc"),
    ):
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
