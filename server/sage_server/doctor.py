"""What is configured and what is wrong."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg

from sage_server import __version__
from sage_server.adapters.embedded_postgres import EmbeddedPostgresError
from sage_server.adapters.embedding import EmbedderError
from sage_server.adapters.postgres.migrate import MigrationError
from sage_server.bootstrap import ROOT_KEY_FILE, Stores, data_dir, open_root_keys, open_stores
from sage_server.bootstrap.embedding import open_embedders
from sage_server.domain.errors import SageError
from sage_server.ports.keys import RootKeyError
from sage_server.settings import Settings

_OVERDUE = timedelta(minutes=1)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    text: str
    fine: bool = True


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything that a server needs."""
    return [
        Finding("version", __version__),
        Finding("data", str(data_dir(settings))),
        _root_key(settings),
        _address(settings),
        _authentication(settings),
        _files(settings),
        await _embedding(settings),
        *await _database(settings),
    ]


def _root_key(settings: Settings) -> Finding:
    file = data_dir(settings) / ROOT_KEY_FILE
    if settings.root_key is None and not file.exists():
        return Finding("root key", "none yet: the first start makes a file")
    try:
        keys = open_root_keys(settings)
    except RootKeyError as error:
        return Finding("root key", str(error), fine=False)
    return Finding("root key", f"{keys.current_id} from {'SAGE_ROOT_KEY' if settings.root_key else file}")


def _address(settings: Settings) -> Finding:
    if settings.listen.startswith("unix:"):
        return Finding("address", settings.listen)
    host, _, port = settings.listen.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return Finding("address", f"{settings.listen}: a server answers there")
    except ValueError:
        return Finding("address", f"SAGE_LISTEN: {settings.listen} is no host:port", fine=False)
    except OSError:
        return Finding("address", f"{settings.listen}: free")


def _authentication(settings: Settings) -> Finding:
    if settings.auth == "none":
        return Finding("authentication", "none, so only loopback is served")
    kinds = "API keys"
    if settings.jwt_configured:
        kinds += f" and JWTs ({settings.jwt_algorithm}, issuer {settings.jwt_issuer})"
    return Finding("authentication", kinds)


def _files(settings: Settings) -> Finding:
    """Files that settings name must be there and readable."""
    named = {
        "SAGE_TLS_CERTIFICATE": settings.tls_certificate,
        "SAGE_TLS_KEY": settings.tls_key,
        "SAGE_TLS_CLIENT_CA": settings.tls_client_ca,
        "SAGE_JWT_KEY_FILE": settings.jwt_key_file,
        "SAGE_LLM_GGUF": settings.llm_gguf,
    }
    bad = [f"{name}: {path} cannot be read" for name, path in named.items() if path and not _readable(path)]
    if bad:
        return Finding("files", "; ".join(bad), fine=False)
    return Finding("files", "all readable" if any(named.values()) else "none named")


async def _embedding(settings: Settings) -> Finding:
    """The model can be loaded, or its server answers."""
    try:
        async with open_embedders(settings) as embedders:
            current = embedders.current
    except EmbedderError as error:
        return Finding("embedding", str(error), fine=False)
    except SageError as error:
        cause = error.metadata.get("cause", "")
        return Finding("embedding", f"{settings.embedding}: {error.message} ({cause})", fine=False)
    return Finding("embedding", f"{current.model}, {current.dimensions} dimensions")


def _readable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.R_OK)


async def _database(settings: Settings) -> list[Finding]:
    """Looks, and changes nothing: neither makes a database nor brings its schema up to date."""
    kind = "embedded" if settings.database_url is None else "external"
    if settings.database_url is None and not (data_dir(settings) / "postgres").exists():
        return [Finding("database", "embedded: none yet: the first start makes one")]
    try:
        async with open_stores(settings) as stores:
            info = await stores.probe.check()
            await stores.check_root_key()
            replicas = await stores.replicas.live()
            jobs = await _jobs(stores)
    except (EmbeddedPostgresError, MigrationError, RootKeyError, OSError) as error:
        return [Finding("database", f"{kind}: {error}", fine=False)]
    except SageError as error:
        return [Finding("database", f"{kind}: {error.message}", fine=False)]
    except asyncpg.UndefinedTableError:
        return [Finding("database", f"{kind}: no schema yet: `migrate` or the first start makes it")]
    except asyncpg.PostgresError as error:
        return [Finding("database", f"{kind}: it refuses ({type(error).__name__})", fine=False)]
    return [
        Finding("database", f"{kind}, Postgres {info.version}, schema {info.schema_revision}"),
        Finding("replicas", f"{len(replicas)} running"),
        jobs,
    ]


async def _jobs(stores: Stores) -> Finding:
    """A worker that is stuck or dead leaves work lying about; a dead job is for the operator to look at."""
    backlog = await stores.jobs.backlog(_OVERDUE)
    dead = sum(stats.dead for stats in await stores.jobs.stats())
    text = f"{backlog.overdue} overdue, {dead} dead"
    if backlog.is_stuck(_OVERDUE):
        return Finding(
            "jobs", f"{text}: no worker takes them (oldest {backlog.age_seconds:.0f} s)", fine=False
        )
    return Finding("jobs", text)
