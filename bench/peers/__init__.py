"""The same work through Sage over gRPC and through its peers, interleaved in one run."""

import os
import sys
from pathlib import Path

# Before the peers are loaded. Nothing may leave the machine, and nothing is left in a home directory.
os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = str(Path(sys.prefix) / "mem0")
os.environ["ANONYMIZED_TELEMETRY"] = "False"
# For FAISS in this process: on few cores one thread is faster for a single query.
os.environ.setdefault("OMP_NUM_THREADS", "1")
