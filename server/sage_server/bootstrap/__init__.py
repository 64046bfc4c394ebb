"""Builds the application from settings. The only file that imports every room."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from sage_server import __version__
from sage_server.adapters.clock import SystemClock
from sage_server.adapters.crypto import CachedKeyRing, EnvironmentRootKeys, FileRootKeys, KeyWrapping
from sage_server.adapters.embedded_postgres import EmbeddedPostgres, default_data_dir
from sage_server.adapters.jwt_tokens import JwtOptions, JwtVerifier, KeySource
from sage_server.adapters.postgres.api_keys import PostgresApiKeyStore
from sage_server.adapters.postgres.connecting import ConnectError
from sage_server.adapters.postgres.conversations import PostgresConversationStore
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.forks import PostgresForkStore
from sage_server.adapters.postgres.items import PostgresItemStore
from sage_server.adapters.postgres.jobs import PostgresJobQueue
from sage_server.adapters.postgres.jobs_runner import PostgresJobRunner, RunnerOptions, connect_for_jobs
from sage_server.adapters.postgres.migrate import migrate
from sage_server.adapters.postgres.probe import PostgresProbe
from sage_server.adapters.postgres.replicas import PostgresReplicaStore
from sage_server.adapters.postgres.retention import PostgresRetentionStore
from sage_server.adapters.postgres.rotation import PostgresRotationStore
from sage_server.adapters.postgres.summaries import PostgresSummaryStore
from sage_server.adapters.postgres.transcripts import PostgresTranscriptStore
from sage_server.adapters.postgres.usage import PostgresUsageStore
from sage_server.adapters.postgres.users import PostgresErasureStore, PostgresKeyStore, PostgresUserStore
from sage_server.adapters.telemetry import LINES, open_tracer
from sage_server.adapters.tokenizer import O200kCounter
from sage_server.bootstrap.agents import AgentNeeds, build_agents
from sage_server.bootstrap.embedding import open_embedders
from sage_server.bootstrap.events import EventParts, build_events
from sage_server.bootstrap.files import check_files
from sage_server.bootstrap.flags import FlagParts, open_flags
from sage_server.bootstrap.language_models import open_language_models
from sage_server.bootstrap.memory import MemoryNeeds, MemoryParts, build_memory
from sage_server.bootstrap.turns import BuiltTurns, TurnNeeds, build_toolbox, build_turns
from sage_server.bootstrap.web import open_web
from sage_server.domain.agents import TurnLimits
from sage_server.domain.errors import SageError
from sage_server.domain.flags import Feature
from sage_server.domain.ids import INSTALLATION, new_id
from sage_server.domain.jobs import JobKind
from sage_server.engine.caches import Caches
from sage_server.engine.compactor import Compactor
from sage_server.engine.replicas import Replicas
from sage_server.engine.usage import UsageMeter
from sage_server.ports.clock import Clock
from sage_server.ports.embedding import Embedders
from sage_server.ports.jobs import JobQueue
from sage_server.ports.keys import KeyStore, RootKeys
from sage_server.ports.language_model import LanguageModels, Purpose
from sage_server.ports.stores import DatabaseProbe, Replica, ReplicaStore
from sage_server.ports.tokens import TokenCounter
from sage_server.ports.web import WebAccess
from sage_server.rpc.admin_servicer import AdminServicer
from sage_server.rpc.call import Interceptor
from sage_server.rpc.conversation_servicer import ConversationServicer
from sage_server.rpc.flag_servicer import FlagServicer
from sage_server.rpc.interceptors.authentication import Authenticate
from sage_server.rpc.interceptors.errors import Errors
from sage_server.rpc.interceptors.limits import LimitOptions, Limits
from sage_server.rpc.interceptors.log import Log
from sage_server.rpc.interceptors.message import Message
from sage_server.rpc.interceptors.metrics import Metrics
from sage_server.rpc.interceptors.request_id import RequestId
from sage_server.rpc.interceptors.validation import Validation
from sage_server.rpc.job_servicer import JobServicer
from sage_server.rpc.page_tokens import PageTokens
from sage_server.rpc.pipeline import Deadlines, Pipeline
from sage_server.rpc.registry import methods
from sage_server.rpc.server import GrpcServer, ServerOptions, TlsFiles
from sage_server.rpc.summary_servicer import SummaryServicer
from sage_server.rpc.usage_servicer import UsageServicer
from sage_server.services.api_keys import ApiKeys
from sage_server.services.authentication import Authentication
from sage_server.services.conversations import Conversations
from sage_server.services.jobs import Jobs
from sage_server.services.key_rotation import KeyRotation
from sage_server.services.retention import Retention
from sage_server.services.server_info import ServerInformation
from sage_server.services.summaries import Summaries
from sage_server.services.transfer import Transfer
from sage_server.services.usage import Usage
from sage_server.services.users import Users
from sage_server.settings import Settings, SettingsError
from sage_server.workers.index_metrics import IndexMetrics
from sage_server.workers.job_metrics import JobMetrics
from sage_server.workers.jobs import JobWorkers
from sage_server.workers.loops import Loop, Workers
from sage_server.workers.turn_metrics import TurnMetrics

ROOT_KEY_FILE = "root.key"
_SYNC_EVERY = 1.0
_ROTATE_EVERY = 10.0
_ERASE_EVERY = 30.0
_PRUNE_EVERY = 600.0
_JOBS_RESTART = 1.0
_JOB_STATS_EVERY = 15.0
_JOB_LOG_KEPT = timedelta(days=1)
_JOB_LIMITS = {JobKind.INDEX_ITEMS: 16, JobKind.REEMBED_USER: 2, JobKind.INGEST_DOCUMENT: 4}
_COUNT_EVERY = 5.0
_FOLLOW_EVERY = 0.5
_REEMBED_EVERY = 30.0
_FLAGS_EVERY = 1.0
_log = logging.getLogger("sage.server")


@dataclass(frozen=True)
class Application:
    """Everything that serves, ready to start."""

    settings: Settings
    registry: CollectorRegistry
    server: GrpcServer
    workers: Workers
    replicas: Replicas
    api_keys: ApiKeys
    users: Users
    rotation: KeyRotation
    retention: Retention
    probe: DatabaseProbe
    usage: UsageMeter
    flags: FlagParts
    memory: MemoryParts
    events: EventParts
    turns: BuiltTurns
    language_model: str
    """The model that answers, unless an agent names another; empty if there is none."""

    async def stop(self, grace: float) -> None:
        """Take nothing more, let calls and turns finish for a while, and give what is left to others."""
        give_up = time.monotonic() + grace
        self.turns.workers.close()
        await self.server.drain(grace)
        await self.turns.workers.drain(max(0.0, give_up - time.monotonic()))
        await self.workers.stop()


def data_dir(settings: Settings) -> Path:
    """Where things are kept that are not in an external database."""
    return settings.data_dir or default_data_dir()


@dataclass(frozen=True)
class DatabaseAccess:
    """Where the database is, and what to do if it is gone."""

    dsn: str
    revive: Callable[[], Awaitable[None]]


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[DatabaseAccess]:
    """Access to the database; an embedded one runs until the block ends. A ConnectError of the block gets
    the name of the setting."""
    if settings.database_url is not None:
        try:
            yield DatabaseAccess(settings.database_url.get_secret_value(), _wait_for_it)
        except ConnectError as error:
            raise ConnectError(f"SAGE_DATABASE_URL: {error}") from error
        return
    postgres = await EmbeddedPostgres.start(data_dir(settings))
    try:
        yield DatabaseAccess(postgres.dsn, postgres.revive)
    finally:
        await postgres.stop()


async def _wait_for_it() -> None:
    """Somebody else's database is somebody else's to start."""


@asynccontextmanager
async def open_application(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Application]:
    """Bring up the database and its schema, and build everything on it. Raises SettingsError before it starts
    anything if a file is missing that the settings name."""
    check_files(settings)
    async with AsyncExitStack() as stack:
        access = await stack.enter_async_context(open_database(settings))
        await migrate(access.dsn)
        database = await Database.open(access.dsn, _pool_options(settings))
        stack.push_async_callback(database.close)
        embedders = await stack.enter_async_context(open_embedders(settings))
        tokens = O200kCounter()
        models = await stack.enter_async_context(open_language_models(settings, tokens))
        web = await stack.enter_async_context(open_web(settings))
        parts = _Opened(settings, database, access, embedders, models, web, tokens, clock or SystemClock())
        application = await _build(parts)
        stack.callback(application.flags.flags.close)
        stack.callback(application.memory.indexes.close)
        stack.push_async_callback(application.replicas.leave)
        stack.push_async_callback(application.usage.close)
        stack.push_async_callback(application.memory.documents.close)
        yield application


@dataclass(frozen=True)
class Stores:
    """What can be looked at without a server."""

    probe: DatabaseProbe
    replicas: ReplicaStore
    jobs: JobQueue
    check_root_key: Callable[[], Awaitable[None]]


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Stores]:
    """The database as it is, for a look."""
    async with open_database(settings) as access:
        database = await Database.open(access.dsn, _pool_options(settings))
        clock = SystemClock()
        try:
            wrapping = KeyWrapping(open_root_keys(settings))
            yield Stores(
                probe=PostgresProbe(database),
                replicas=PostgresReplicaStore(database, clock),
                jobs=PostgresJobQueue(database),
                check_root_key=partial(check_root_key, PostgresKeyStore(database, clock), wrapping),
            )
        finally:
            await database.close()


def open_root_keys(settings: Settings) -> RootKeys:
    """From the settings, or from the file in the data directory."""
    if settings.root_key is not None:
        previous = settings.root_key_previous
        earlier = [] if previous is None else previous.get_secret_value().split(",")
        return EnvironmentRootKeys(settings.root_key.get_secret_value(), earlier)
    return FileRootKeys.open_or_create(data_dir(settings) / ROOT_KEY_FILE)


@dataclass(frozen=True)
class _Opened:
    """What the application is built on."""

    settings: Settings
    database: Database
    access: DatabaseAccess
    embedders: Embedders
    models: LanguageModels
    web: WebAccess | None
    tokens: TokenCounter
    clock: Clock


async def _build(opened: _Opened) -> Application:
    settings, database, access = opened.settings, opened.database, opened.access
    embedders, models, tokens, clock = opened.embedders, opened.models, opened.tokens, opened.clock
    root_keys = open_root_keys(settings)
    wrapping = KeyWrapping(root_keys)
    key_store = PostgresKeyStore(database, clock)
    keys = CachedKeyRing(key_store, wrapping, settings.key_cache)
    await _ensure_installation_key(key_store, wrapping)

    users = PostgresUserStore(database, clock, wrapping.new_key)
    api_key_store = PostgresApiKeyStore(database, keys)
    authentication = _authentication(settings, users, api_key_store, clock)
    conversations = PostgresConversationStore(database, keys)
    items = PostgresItemStore(database, keys, clock)
    transcripts = PostgresTranscriptStore(database, keys)
    summaries = PostgresSummaryStore(database, keys)
    pages = PageTokens(keys)
    queue = PostgresJobQueue(database)
    usage_store = PostgresUsageStore(database)
    usage = UsageMeter(usage_store, clock)
    flags = await open_flags(settings, database, clock)
    events = build_events(settings, database, access.dsn, keys, clock)
    memory = build_memory(
        MemoryNeeds(
            settings=settings,
            database=database,
            keys=keys,
            clock=clock,
            embedders=embedders,
            usage=usage,
            flags=flags.flags,
            conversations=conversations,
            transcripts=transcripts,
            summaries=summaries,
            queue=queue,
            pages=pages,
        )
    )
    compactor = Compactor(
        summaries=summaries,
        writer=memory.writer,
        models=models,
        tokens=tokens,
        flags=flags.flags,
        clock=clock,
    )
    now = clock.now()
    me = Replica(new_id(now), now, now, __version__)
    limits_of_turns = TurnLimits(
        timedelta(seconds=settings.turn_seconds), settings.turn_tokens, settings.turn_memory_writes
    )
    toolbox = build_toolbox(settings, memory, opened.web, flags.flags)
    agents = build_agents(
        AgentNeeds(
            database=database,
            keys=keys,
            clock=clock,
            embedders=embedders,
            usage=usage,
            writer=memory.writer,
            transcripts=transcripts,
            models=models,
            tool_names=toolbox.names,
            publish=events.hub.publish,
            limits=limits_of_turns,
            pages=pages,
        )
    )
    turns = build_turns(
        TurnNeeds(
            settings=settings,
            database=database,
            keys=keys,
            clock=clock,
            tokens=tokens,
            owner=me.id,
            models=models,
            flags=flags.flags,
            usage=usage,
            agents=agents.store,
            conversations=conversations,
            transcripts=transcripts,
            summaries=summaries,
            compactor=compactor,
            memory=memory,
            events=events,
            toolbox=toolbox,
            limits=limits_of_turns,
            pages=pages,
        )
    )
    replicas = Replicas(
        PostgresReplicaStore(database, clock),
        Caches(keys, authentication, flags.cache, memory.indexes, agents.vectors, events.hub),
        me,
    )
    probe = PostgresProbe(database)
    api_keys = ApiKeys(api_key_store, replicas, clock)
    rotation = KeyRotation(
        users=users,
        key_store=key_store,
        root_keys=root_keys,
        new_key=wrapping.new_key,
        rewrap=wrapping.rewrap,
        rotations=PostgresRotationStore(database, keys),
        replicas=replicas,
    )
    people = Users(users, PostgresErasureStore(database), replicas, clock)
    registry = CollectorRegistry()
    servicers: dict[str, list[object]] = {
        "ConversationService": [
            ConversationServicer(
                Conversations(
                    conversations=conversations,
                    items=items,
                    forks=PostgresForkStore(database, keys),
                    memory=memory.writer,
                    end_turns=turns.service.end_in,
                    clock=clock,
                    tokens=tokens,
                ),
                Transfer(
                    conversations=conversations,
                    items=items,
                    transcripts=transcripts,
                    agents=agents.store,
                    clock=clock,
                    tokens=tokens,
                ),
                pages,
            ),
            SummaryServicer(
                Summaries(
                    conversations=conversations,
                    transcripts=transcripts,
                    summaries=summaries,
                    compactor=compactor,
                    turns=turns.store,
                    usage=usage,
                    flags=flags.flags,
                    clock=clock,
                ),
                pages,
            ),
            UsageServicer(Usage(usage=usage_store, meter=usage, clock=clock)),
            *turns.responders,
        ],
        "AgentService": [
            *agents.servicers,
            *turns.servicers,
            *events.servicers(turns.store, agents.store, clock),
        ],
        "MemoryService": memory.servicers,
        "AdminService": [
            AdminServicer(
                api_keys=api_keys,
                users=people,
                rotation=rotation,
                information=ServerInformation(
                    replicas=replicas,
                    probe=probe,
                    root_keys=root_keys,
                    embedded=settings.database_url is None,
                    authentication_required=settings.auth == "required",
                ),
                pages=pages,
            ),
            JobServicer(Jobs(queue), pages),
            FlagServicer(flags.service, pages),
        ],
    }
    job_metrics = JobMetrics(registry, queue)
    IndexMetrics(registry, memory.indexes)
    TurnMetrics(registry, turns.workers)
    jobs = JobWorkers(
        runner=PostgresJobRunner(partial(connect_for_jobs, access.dsn), RunnerOptions(limits=_JOB_LIMITS)),
        handlers=memory.handlers,
        metrics=job_metrics,
        allowed=partial(flags.flags.globally_on, Feature.TURNS),
    )
    limits = _limits(settings)
    interceptors = _interceptors(
        settings=settings,
        registry=registry,
        authentication=authentication,
        replicas=replicas,
        limits=limits,
    )
    pipeline = Pipeline(interceptors, Deadlines(settings.unary_deadline, settings.stream_deadline))
    server = GrpcServer(methods(servicers), pipeline, limits, events.hub, _server_options(settings))
    retention = Retention(
        PostgresRetentionStore(database),
        clock,
        timedelta(days=settings.deleted_days),
        None if settings.inactive_days is None else timedelta(days=settings.inactive_days),
    )
    workers = Workers(
        [
            Loop("replica-sync", _SYNC_EVERY, lambda: _sync(replicas, server, access, jobs)),
            Loop("flags", _FLAGS_EVERY, flags.cache.refresh),
            Loop("jobs", _JOBS_RESTART, jobs.run),
            Loop("job-stats", _JOB_STATS_EVERY, job_metrics.refresh),
            Loop("job-log", _PRUNE_EVERY, partial(queue.prune, _JOB_LOG_KEPT)),
            Loop("key-rotation", _ROTATE_EVERY, rotation.reseal_pending),
            Loop("erasure", _ERASE_EVERY, people.finish_erasures),
            Loop("retention", _PRUNE_EVERY, retention.run),
            Loop("usage", _COUNT_EVERY, usage.flush),
            Loop("indexes", _FOLLOW_EVERY, memory.indexes.follow),
            Loop("reembedding", _REEMBED_EVERY, memory.reembedding.plan),
            *events.loops,
            *turns.loops,
        ]
    )
    return Application(
        settings=settings,
        registry=registry,
        server=server,
        workers=workers,
        replicas=replicas,
        api_keys=api_keys,
        users=people,
        rotation=rotation,
        retention=retention,
        probe=probe,
        usage=usage,
        flags=flags,
        memory=memory,
        events=events,
        turns=turns,
        language_model=_default_model(models),
    )


def _default_model(models: LanguageModels) -> str:
    try:
        return models.get("", Purpose.CHAT).name
    except SageError:
        return ""


async def _ensure_installation_key(store: KeyStore, wrapping: KeyWrapping) -> None:
    """Make the installation's key at the very first start. At every later one, opening it proves that the
    root key is the one that this database was written with."""
    if not await store.load(INSTALLATION):
        await store.add(INSTALLATION, await wrapping.new_key(INSTALLATION, 1))
    await check_root_key(store, wrapping)


async def check_root_key(store: KeyStore, wrapping: KeyWrapping) -> None:
    """Raises RootKeyError unless the installation's key opens."""
    for key in await store.load(INSTALLATION):
        await wrapping.unwrap(INSTALLATION, key)


async def _sync(replicas: Replicas, server: GrpcServer, access: DatabaseAccess, jobs: JobWorkers) -> None:
    """Health follows the database: a replica that cannot reach it should get no calls. The workers of jobs
    have a name of their own there: without them calls are served as before."""
    await server.set_jobs_serving(serving=jobs.is_alive())
    try:
        await replicas.sync()
    except SageError:
        await server.set_serving(serving=False)
        await access.revive()
        raise
    await server.set_serving(serving=True)


def _authentication(
    settings: Settings, users: PostgresUserStore, api_keys: PostgresApiKeyStore, clock: Clock
) -> Authentication:
    verifier = None
    if settings.jwt_configured:
        verifier = JwtVerifier(
            JwtOptions(
                algorithm=settings.jwt_algorithm,
                issuer=settings.jwt_issuer or "",
                audience=settings.jwt_audience or "",
                key_file=settings.jwt_key_file,
                tenant_claim=settings.jwt_tenant_claim,
                default_tenant=settings.tenant,
            ),
            _published_keys(settings),
        )
    return Authentication(
        users=users,
        api_keys=api_keys,
        tokens=verifier,
        clock=clock,
        required=settings.auth == "required",
        default_tenant=settings.tenant,
        capacity=settings.key_cache,
    )


def _published_keys(settings: Settings) -> KeySource | None:
    if settings.jwt_jwks_url is None:
        return None
    from sage_server.adapters.jwks import PublishedKeys  # noqa: PLC0415 (an HTTP client, rarely needed)

    return PublishedKeys(settings.jwt_jwks_url, settings.jwt_algorithm)


def _interceptors(
    *,
    settings: Settings,
    registry: CollectorRegistry,
    authentication: Authentication,
    replicas: Replicas,
    limits: Limits,
) -> list[Interceptor]:
    interceptors: list[Interceptor] = [
        RequestId(),
        Log(LINES.write, settings.log_format, settings.log_level),
        Metrics(registry),
        Errors(),
        Authenticate(authentication, replicas),
        limits,
        Message(settings.max_request_bytes),
        Validation(),
    ]
    if settings.otlp_endpoint is not None:
        interceptors.insert(1, _tracing(settings.otlp_endpoint))
    return interceptors


def _tracing(endpoint: str) -> Interceptor:
    try:
        from sage_server.rpc.interceptors.tracing import Tracing  # noqa: PLC0415 (needs the extra `otel`)

        return Tracing(open_tracer(endpoint, __version__))
    except ImportError:
        raise SettingsError(
            "SAGE_OTLP_ENDPOINT: needs the extra `otel` (pip install 'sage-memory[otel]')"
        ) from None


def _limits(settings: Settings) -> Limits:
    return Limits(
        LimitOptions(
            concurrent=settings.max_concurrent,
            concurrent_per_user=settings.max_concurrent_per_user,
            per_second_per_user=settings.max_rate_per_user,
        )
    )


def _server_options(settings: Settings) -> ServerOptions:
    tls = None
    if settings.tls_certificate is not None and settings.tls_key is not None:
        tls = TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        try:
            # gRPC would say of files that are none that the address cannot be listened on.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
        except ssl.SSLError:
            raise SettingsError(
                "SAGE_TLS_CERTIFICATE and SAGE_TLS_KEY: must be a certificate and its private key (PEM)"
            ) from None
    return ServerOptions(
        address=settings.listen,
        tls=tls,
        reflection=settings.reflection,
        max_request_bytes=settings.max_request_bytes,
    )


def _pool_options(settings: Settings) -> PoolOptions:
    return PoolOptions(
        min_size=settings.pool_min,
        max_size=settings.pool_max,
        acquire_timeout=settings.pool_timeout,
        statement_timeout=settings.statement_timeout,
    )
