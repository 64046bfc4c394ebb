"""What an agent's own version of a shared block was made from."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memory_blocks", sa.Column("base_id", sa.Uuid(), nullable=True))
    op.add_column("memory_blocks", sa.Column("base_revision", sa.BigInteger(), nullable=True))
    op.create_index(
        "ix_memories_overlay",
        "memories",
        ["user_id", "agent_id", "updated_at", "id"],
        unique=False,
        postgresql_where=sa.text("state = 0 AND source = 1 AND agent_id IS NOT NULL"),
    )
