"""Alembic's entrance. `migrate.py` hands over the connection; there is no offline mode."""

from alembic import context

from sage_server.adapters.postgres.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
