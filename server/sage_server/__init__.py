"""Sage's server. `bootstrap` builds it from `settings`; the folders are the path of a request."""

import os
from importlib.metadata import version

# The server starts processes (Postgres) but never forks without exec, which is all that gRPC's fork support
# is for; with it, a child can get stuck between the two and keep inherited locks. Read when grpc is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

__version__ = version("sage-memory")
