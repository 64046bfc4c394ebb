"""JavaScript code of the contract for the tests with connect-web: tests/web/browser/generated.

Run through make: `make test-web`. It needs the packages of tests/web/browser.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import google.rpc.error_details_pb2 as error_details
from grpc_tools import protoc

from contract import IMPORTS, PROTO, ROOT, VALIDATE, fetch_imports

BROWSER = ROOT / "tests" / "web" / "browser"
TARGET = BROWSER / "generated"


def main() -> None:
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
