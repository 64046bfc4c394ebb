"""Everything that is made from proto/: generated code, its drift check, and the rules of the contract.

Run through make: `make generate`, `make lint`, `make format`.
"""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import sync_client
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
GENERATED = ROOT / "generated"
IMPORTS = ROOT / "build" / "proto-imports"
VALIDATE = IMPORTS / "buf" / "validate" / "validate.proto"
# The runtime's wheel has no .proto file, and its source distribution needs a Rust toolchain even to be
# looked at; this one is the last that pip can simply download. The schema of the rules is the same.
VALIDATE_SOURCE = "protovalidate==1.2.0"
TOOLS = Path(sys.executable).parent


def fetch_imports() -> None:
    """Put the files that the contract imports under build/, unless they are there."""
    if VALIDATE.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        _run(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-binary", "protovalidate", "--dest", folder, VALIDATE_SOURCE),
        )
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            (member,) = [m for m in tar.getmembers() if m.name.endswith("/buf/validate/validate.proto")]
            source = tar.extractfile(member)
            assert source is not None
            VALIDATE.parent.mkdir(parents=True, exist_ok=True)
            VALIDATE.write_bytes(source.read())


def generate(target: Path) -> None:
    """Write the Python code of the contract to a folder that holds nothing else."""
    fetch_imports()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = sorted(str(path) for path in [*PROTO.rglob("*.proto"), VALIDATE])
    arguments = [
        "protoc",
        f"-I{PROTO}",
        f"-I{IMPORTS}",
        f"-I{Path(protoc.__file__).parent / '_proto'}",
        f"--plugin=protoc-gen-mypy={TOOLS / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={TOOLS / 'protoc-gen-mypy_grpc'}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_out=quiet:{target}",
        f"--mypy_grpc_out=quiet:{target}",
        *files,
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed")
    for service_less in target.rglob("*_pb2_grpc.py*"):
        # grpc_tools writes one for every file; those without a service are empty shells.
        if "class " not in service_less.read_text():
            service_less.unlink()
    (target / "sage" / "py.typed").touch()


def check() -> None:
    """Exit with a message if the committed code is not what the sources give."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "generated"
        generate(fresh)
        drift = _differences(fresh, GENERATED)
        twin = Path(folder) / "sync"
        sync_client.generate(twin)
        drift += _differences(twin, sync_client.TARGET)
    if drift:
        names = "\n  ".join(drift)
        sys.exit(f"Generated code is not what its sources give. Run `make generate` and commit:\n  {names}")


def lint() -> None:
    """Exit with a message if the contract breaks a rule or an earlier promise."""
    fetch_imports()
    _buf("lint")
    _buf("format", "--diff", "--exit-code", str(PROTO))
    base = _last_commit()
    if base is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "base.tar"
        _run("git", "archive", "-o", str(archive), base, "proto", "buf.yaml")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        shutil.copytree(IMPORTS, Path(folder) / IMPORTS.relative_to(ROOT))
        _buf("breaking", "--against", folder)


def _last_commit() -> str | None:
    """The commit to compare with: where a branch left main; on main HEAD, or its parent for a clean tree."""
    fork = _git("merge-base", "HEAD", "main")
    if fork and fork != _git("rev-parse", "HEAD"):
        return fork
    name = "HEAD" if _git("status", "--porcelain", "--", "proto") else "HEAD^"
    return name if _git("ls-tree", name, "proto") else None


def _git(*arguments: str) -> str:
    """What git says; nothing if it fails."""
    return subprocess.run(
        ("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def _differences(fresh: Path, committed: Path) -> list[str]:
    ours = {p.relative_to(committed) for p in committed.rglob("*") if _counts(p)}
    theirs = {p.relative_to(fresh) for p in fresh.rglob("*") if _counts(p)}
    changed = {p for p in ours & theirs if not filecmp.cmp(fresh / p, committed / p, shallow=False)}
    return sorted(str((committed / p).relative_to(ROOT)) for p in (ours ^ theirs) | changed)


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _buf(*arguments: str) -> None:
    _run(str(TOOLS / "buf"), *arguments)


def _run(*command: str) -> None:
    finished = subprocess.run(command, cwd=ROOT, check=False)
    if finished.returncode != 0:
        sys.exit(f"{Path(command[0]).name} {command[1]} failed")


def main() -> None:
    """Do what the first argument names."""
    match sys.argv[1:]:
        case ["generate"]:
            generate(GENERATED)
            sync_client.generate(sync_client.TARGET)
        case ["check"]:
            check()
        case ["lint"]:
            lint()
        case ["format"]:
            fetch_imports()
            _buf("format", "--write", str(PROTO))
        case _:
            sys.exit("usage: contract.py generate|check|lint|format")


if __name__ == "__main__":
    main()
