from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sage_client

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "sync_client.py"


@pytest.fixture(scope="module")
def sync_client() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sync_client", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def f():\n    return await g()\n", "def f():\n    return g()\n"),
        ("async with a as b:\n    pass\n", "with a as b:\n    pass\n"),
        ("x = [y async for y in z]\n", "x = [y for y in z]\n"),
        ("import grpc.aio\n", "import grpc\n"),
        ("c: grpc.aio.Channel\n", "c: grpc.Channel\n"),
        ("import asyncio\nawait asyncio.sleep(1)\n", "import time\ntime.sleep(1)\n"),
        ("from a._async.b import AsyncB, XAsyncStub\n", "from a._sync.b import B, XStub\n"),
        ("async def __aenter__(self): ...\n", "def __enter__(self): ...\n"),
        ("s = 'await client.x of AsyncB'  # async with it\n", "s = 'client.x of B'  # with it\n"),
        ("awaited, Asynchronous = 1, 2\n", "awaited, Asynchronous = 1, 2\n"),
        ("é = 'ü…'; await f('ö')\nawait g()\n", "é = 'ü…'; f('ö')\ng()\n"),
    ],
)
def test_async_goes_and_nothing_else_changes(sync_client: ModuleType, source: str, expected: str) -> None:
    assert sync_client.rewrite(source) == expected


@pytest.mark.parametrize("source", ["asyncio.gather(a, b)\n", "from grpc import aio\n"])
def test_what_has_no_plain_form_stops_the_script(sync_client: ModuleType, source: str) -> None:
    with pytest.raises(sync_client.NoPlainFormError, match="line 1"):
        sync_client.rewrite(source)


def test_the_committed_sync_client_is_what_the_script_writes(sync_client: ModuleType, tmp_path: Path) -> None:
    sync_client.generate(tmp_path / "sync")
    written = {path.name: path.read_text() for path in (tmp_path / "sync").iterdir()}
    committed = {path.name: path.read_text() for path in sync_client.TARGET.glob("*.py")}

    assert written == committed


@pytest.mark.parametrize("service", ["conversations", "admin"])
async def test_both_clients_have_the_same_methods(service: str) -> None:
    def methods(client: object) -> dict[str, list[str]]:
        found = inspect.getmembers(getattr(client, service), inspect.ismethod)
        return {name: list(inspect.signature(method).parameters) for name, method in found}

    async with sage_client.connect_async("127.0.0.1:1") as asynchronous:
        with sage_client.connect("127.0.0.1:1") as plain:
            assert methods(plain) == methods(asynchronous)
