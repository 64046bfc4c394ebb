"""What a client is told, before and after there is anything to send."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sage_client
from sage_client import RetryPolicy, TlsOptions

Connect = Callable[[str], object]
both = pytest.mark.parametrize("connect", [sage_client.connect, sage_client.connect_async])


@both
@pytest.mark.parametrize(
    "address", ["", "http://127.0.0.1:50051", "localhost", "localhost:0", "x:65536", "::1:50051", "unix:"]
)
def test_what_is_no_address_is_refused_at_once(connect: Connect, address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        connect(address)


@pytest.mark.parametrize(
    "address", ["localhost:50051", "[::1]:50051", "unix:/run/sage", "dns:///sage:50051", "ipv6:[::1]:50051"]
)
def test_every_kind_of_address_is_taken(address: str) -> None:
    sage_client.connect(address).close()


def test_tls_that_is_a_path_is_refused() -> None:
    with pytest.raises(TypeError, match="TlsOptions"):
        sage_client.connect(tls="ca.pem")  # type: ignore[arg-type]  # what is tested


def test_a_file_for_tls_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(FileNotFoundError, match=str(missing)):
        sage_client.connect(tls=TlsOptions(ca_file=missing))


def test_without_a_server_the_address_comes_before_what_grpc_says() -> None:
    with sage_client.connect("127.0.0.1:1", retry=RetryPolicy(max_attempts=1)) as client:
        with pytest.raises(sage_client.Unavailable) as caught:
            client.usage()
    assert caught.value.message.startswith("No Sage server answers at 127.0.0.1:1: ")


async def test_a_closed_client_says_so_in_both_clients() -> None:
    begun = time.monotonic()
    plain, awaited = sage_client.connect("127.0.0.1:1"), sage_client.connect_async("127.0.0.1:1")
    plain.close()
    await awaited.close()
    with pytest.raises(sage_client.ClientClosedError):
        plain.with_options(user="otto").usage()
    with pytest.raises(sage_client.ClientClosedError):
        list(plain.memory.documents.ingest(b"Beans"))
    with pytest.raises(sage_client.ClientClosedError) as caught:
        await awaited.usage()
    assert str(pickle.loads(pickle.dumps(caught.value))) == "The client is closed."
    assert time.monotonic() - begun < 2


async def test_a_client_shows_address_and_user_and_never_the_token() -> None:
    with sage_client.connect("127.0.0.1:1", user="maria", token="secret") as client:
        assert repr(client) == "<SageClient of 'maria' at 127.0.0.1:1>"
    async with sage_client.connect_async("127.0.0.1:1") as other:
        assert repr(other) == "<AsyncSageClient of None at 127.0.0.1:1>"


@both
async def test_a_client_that_was_never_closed_is_a_warning(connect: Connect) -> None:
    with pytest.warns(ResourceWarning, match=r"unclosed client for 127\.0\.0\.1:1"):
        connect("127.0.0.1:1")


def test_a_client_on_anothers_channel_leaves_without_a_warning() -> None:
    with sage_client.connect("127.0.0.1:1") as client:
        client.with_options(user="otto")
        gc.collect()
