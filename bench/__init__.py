"""Ratios against raw limits: how much of what the machine could do is left of it."""

import os

# Before gRPC is loaded: it would remark on every child process that is started.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
