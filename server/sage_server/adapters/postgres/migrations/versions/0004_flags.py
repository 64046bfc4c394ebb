"""Feature flags."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "flag_head",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flag_head")),
    )
    op.create_table(
        "flags",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_flags_users")),
        sa.PrimaryKeyConstraint("user_id", "tenant", "name", name=op.f("pk_flags")),
    )
    op.create_index(
        op.f("ix_flags_tenant_user_id_name"), "flags", ["tenant", "user_id", "name"], unique=False
    )
    op.execute("INSERT INTO flag_head (id, revision) VALUES (1, 0)")
