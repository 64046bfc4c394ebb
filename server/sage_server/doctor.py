"""What is configured and what is wrong."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPConnection, HTTPException

import asyncpg

from sage_server import __version__
from sage_server.adapters.embedded_postgres import EmbeddedPostgresError
from sage_server.adapters.embedding import EmbedderError
from sage_server.adapters.language_model import ListingError, listed_models
from sage_server.adapters.postgres.connecting import ConnectError
from sage_server.adapters.postgres.migrate import MigrationError
from sage_server.bootstrap import ROOT_KEY_FILE, Stores, data_dir, open_root_keys, open_stores
from sage_server.bootstrap.embedding import open_embedders
from sage_server.bootstrap.files import check_files, named_files
from sage_server.configured_model import (
    DEFAULT_NAME,
    answering_model,
    described_model,
    has_model_name,
    is_without_effect,
    named_models,
    shown_address,
)
from sage_server.domain.errors import SageError
from sage_server.domain.models import MODEL_PATTERN, ModelProvider
from sage_server.ports.keys import RootKeyError
from sage_server.settings import Settings, SettingsError

_OVERDUE = timedelta(minutes=1)
_PATIENCE = 5.0
_SHOWN_MODELS = 3


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. What is `doubtful` works for some and is a mistake for others."""

    subject: str
    text: str
    fine: bool = True
    doubtful: bool = False

    @property
    def verdict(self) -> str:
        """In a word."""
        if not self.fine:
            return "WRONG"
        return "CHECK" if self.doubtful else "ok"


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything that a server needs."""
    return [
        Finding("version", __version__),
        Finding("data", str(data_dir(settings))),
        _root_key(settings),
        _address(settings),
        await asyncio.to_thread(_metrics, settings),
        _authentication(settings),
        _files(settings),
        await _embedding(settings),
        *await _language_models(settings),
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
    answers = _answers(settings.listen)
    return Finding("address", f"{settings.listen}: {'a server answers there' if answers else 'free'}")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
    except OSError:
        return False


def _metrics(settings: Settings) -> Finding:
    """The address can be listened on, unless the server that answers calls has it already."""
    address = settings.metrics_listen
    if address == "off":
        return Finding("metrics", "off")
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), int(port)), family=family).close()
    except OSError as error:
        return _unusable(settings, error)
    return Finding("metrics", f"{address}: free")


def _unusable(settings: Settings, error: OSError) -> Finding:
    address, why = settings.metrics_listen, "cannot be listened on"
    if error.errno == errno.EADDRINUSE:
        ours = _is_ours(address)
        if ours and (settings.listen.startswith("unix:") or _answers(settings.listen)):
            return Finding("metrics", f"{address}: a Sage answers there")
        why = f"is taken by another {'Sage' if ours else 'program'}"
    text = f"SAGE_METRICS_LISTEN: {address} {why}. Choose another, or `off`."
    return Finding("metrics", text, fine=False)


def _is_ours(address: str) -> bool:
    """Whether metrics of a Sage are read there."""
    connection = HTTPConnection(address, timeout=_PATIENCE)
    try:
        connection.request("GET", "/metrics")
        return b"# HELP sage_" in connection.getresponse().read()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _authentication(settings: Settings) -> Finding:
    if settings.auth == "none":
        return Finding("authentication", "none, so only loopback is served")
    kinds = "API keys"
    if settings.jwt_configured:
        kinds += f" and JWTs ({settings.jwt_algorithm}, issuer {settings.jwt_issuer})"
    return Finding("authentication", kinds)


def _files(settings: Settings) -> Finding:
    """Files that settings name must be there and readable."""
    try:
        check_files(settings)
    except SettingsError as error:
        return Finding("files", "; ".join(str(error).splitlines()), fine=False)
    return Finding("files", "all readable" if named_files(settings) else "none named")


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


async def _language_models(settings: Settings) -> list[Finding]:
    """Every provider that is configured answers, and has the models that the settings name."""
    found = await asyncio.gather(
        *(_provider(settings, name, provider) for name, provider in settings.model_providers.items())
    )
    answering = answering_model(settings)
    if answering in settings.model_providers or "/" in answering:
        return found
    own = Finding(
        "language model", described_model(settings, answering), fine=not is_without_effect(settings)
    )
    return [own, *found]


async def _provider(settings: Settings, name: str, provider: ModelProvider) -> Finding:
    models = [model for model in named_models(settings) if model.startswith(f"{name}/")]
    what = f"{', '.join(models) or name} at {shown_address(provider.base_url)}:"
    try:
        listed = await listed_models(provider, _PATIENCE)
    except ListingError as error:
        return Finding("language model", f"{what} {error}", fine=False)
    if listed is None:
        text = f"{what} answers, but has no list of models there (does the address lack its /v1?)"
        return Finding("language model", text, doubtful=True)
    # Ollama lists `name:latest` for `name`.
    bare = [model.removeprefix(f"{name}/") for model in models]
    missing = [model for model in bare if not listed & {model, f"{model}:latest"}]
    if missing:
        advice = "" if has_model_name(settings) else f" ({DEFAULT_NAME})"
        text = f"{what} answers, but does not list {', '.join(missing)}{advice}"
        return Finding("language model", f"{text}. {_some(listed)}", doubtful=True)
    return Finding("language model", f"{what} answers{' and lists it' if models else ''}")


def _some(listed: AbstractSet[str]) -> str:
    """A few names, for what is to be set. Only what can be set is shown: the rest is anybody's text."""
    names = sorted(name for name in listed if re.fullmatch(MODEL_PATTERN, name))
    more = ", …" if len(names) > _SHOWN_MODELS else ""
    return f"It lists {', '.join(names[:_SHOWN_MODELS]) or 'nothing'}{more}"


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
    except (ConnectError, EmbeddedPostgresError, MigrationError, RootKeyError, OSError) as error:
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
