"""`sage-server`: serve, migrate, keys, doctor."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from datetime import timedelta
from typing import Annotated, Any, NoReturn, TypeVar
from uuid import UUID

import typer

from sage_server import __version__
from sage_server.adapters.clock import SystemClock
from sage_server.adapters.crypto import new_root_key
from sage_server.adapters.embedded_postgres import EmbeddedPostgresError
from sage_server.adapters.embedding import EmbedderError
from sage_server.adapters.postgres.connecting import ConnectError
from sage_server.adapters.postgres.migrate import MigrationError, migrate
from sage_server.adapters.telemetry import configure_logging
from sage_server.bootstrap import open_application, open_database
from sage_server.doctor import examine
from sage_server.domain.errors import SageError
from sage_server.domain.identity import Role
from sage_server.ports.keys import RootKeyError
from sage_server.serve import serve
from sage_server.settings import Settings, SettingsError, load_settings

T = TypeVar("T")
_EXPECTED = (
    SettingsError,
    ConnectError,
    EmbeddedPostgresError,
    EmbedderError,
    MigrationError,
    RootKeyError,
    SageError,
    OSError,
)

app = typer.Typer(
    name="sage-server",
    help="Sage: a persistent agent with encrypted memory for your application's users.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
keys_app = typer.Typer(help="API keys, users' keys and the root key.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")

Tenant = Annotated[str | None, typer.Option(help="Tenant. Default: the setting SAGE_TENANT.")]


@app.command("serve")
def serve_command() -> None:
    """Run the server until Ctrl-C or SIGTERM.

    Without any setting: an embedded database, 127.0.0.1:50051, no authentication, loopback only.

    Example: SAGE_LISTEN=127.0.0.1:6000 sage-server serve
    """
    settings = _settings()
    configure_logging(settings.log_level, settings.log_format)
    _run(serve(settings, typer.echo))


@app.command("migrate")
def migrate_command() -> None:
    """Bring the database's schema up to date. `serve` does so by itself.

    Example: SAGE_DATABASE_URL=postgresql://sage@db/sage sage-server migrate
    """

    async def run(settings: Settings) -> None:
        async with open_database(settings) as access:
            await migrate(access.dsn)

    _run(run(_quiet_settings()))
    typer.echo("The schema is up to date.")


@app.command("doctor")
def doctor_command() -> None:
    """Say what is configured, and what is wrong. Exits with 1 if anything is.

    Example: sage-server doctor
    """
    try:
        settings = load_settings()
    except SettingsError as error:
        typer.echo(f"settings        wrong: {error}")
        raise typer.Exit(1) from None
    configure_logging("error", "text")
    healthy = True
    for finding in _run(examine(settings)):
        healthy &= finding.fine
        typer.echo(f"{finding.subject:15} {finding.verdict}: {finding.text}")
    if not healthy:
        raise typer.Exit(1)


@app.command("version")
def version_command() -> None:
    """Print the version.

    Example: sage-server version
    """
    typer.echo(__version__)


@keys_app.command("create-api-key")
def create_api_key(
    name: Annotated[str, typer.Argument(help="A name for people.")],
    role: Annotated[str, typer.Option(help="service, admin or operator.")] = "service",
    tenant: Tenant = None,
    days: Annotated[
        float | None, typer.Option(min=0.001, help="Days until it expires. Default: never.")
    ] = None,
) -> None:
    """Create an API key and print its secret, which is shown only now.

    Example: sage-server keys create-api-key "billing worker" --role service
    """
    roles = {r.name.lower(): r for r in Role if r is not Role.USER}
    if role not in roles:
        _fail(f"--role: expected one of {', '.join(roles)}")

    async def run(settings: Settings) -> str:
        expires_at = None if days is None else SystemClock().now() + timedelta(days=days)
        async with open_application(settings) as application:
            _, secret = await application.api_keys.create(
                tenant=tenant or settings.tenant,
                name=name,
                role=roles[role],
                expires_at=expires_at,
                once=None,
            )
            return secret

    typer.echo(_run(run(_quiet_settings())))


@keys_app.command("list-api-keys")
def list_api_keys(tenant: Tenant = None) -> None:
    """List the API keys of a tenant.

    Example: sage-server keys list-api-keys --tenant default
    """

    async def run(settings: Settings) -> None:
        now = SystemClock().now()
        async with open_application(settings) as application:
            after = None
            while True:
                page = await application.api_keys.list(tenant or settings.tenant, 200, after)
                for key in page.rows:
                    state = "usable" if key.usable(now) else "revoked" if key.revoked_at else "expired"
                    typer.echo(f"{key.id}  {key.prefix}…  {key.role.name.lower():8}  {state:7}  {key.name}")
                after = page.next
                if after is None:
                    return

    _run(run(_quiet_settings()))


@keys_app.command("revoke-api-key")
def revoke_api_key(key_id: Annotated[UUID, typer.Argument(help="The key's id.")]) -> None:
    """Revoke an API key on every running replica.

    Example: sage-server keys revoke-api-key 0193e2a4-7b1c-7c3a-9e58-0123456789ab
    """

    async def run(settings: Settings) -> None:
        async with open_application(settings) as application:
            await application.api_keys.revoke(key_id, tenant=settings.tenant, role=Role.OPERATOR)

    _run(run(_quiet_settings()))
    typer.echo("Revoked.")


@keys_app.command("rotate-user")
def rotate_user(
    external_id: Annotated[str, typer.Argument(help="The user's id in the application.")],
    tenant: Tenant = None,
) -> None:
    """Give a user a new key and seal everything of theirs again. Safe while servers run.

    Example: sage-server keys rotate-user maria
    """

    async def run(settings: Settings) -> int:
        async with open_application(settings) as application:
            user_id, version = await application.rotation.rotate_user(tenant or settings.tenant, external_id)
            sealed = _progress("rows sealed again")
            while not await application.rotation.reseal(user_id, sealed):  # noqa: ASYNC110
                await asyncio.sleep(1)
            return version

    typer.echo(f"Key version {_run(run(_quiet_settings()))} is the only one now.")


@keys_app.command("rotate-root")
def rotate_root() -> None:
    """Make a new root key and wrap every user's key with it. Safe while servers run.

    With SAGE_ROOT_KEY: set the new key there and the old one in SAGE_ROOT_KEY_PREVIOUS first.
    Keep the old root key for as long as you keep backups from before.

    Example: sage-server keys rotate-root
    """

    async def run(settings: Settings) -> tuple[str, int]:
        async with open_application(settings) as application:
            return await application.rotation.rotate_root(_progress("keys wrapped again"))

    root_key_id, count = _run(run(_quiet_settings()))
    typer.echo(f"Root key {root_key_id} is current; {count} keys were wrapped again.")


@keys_app.command("new-root-key")
def print_root_key() -> None:
    """Print a fresh root key for SAGE_ROOT_KEY.

    Example: export SAGE_ROOT_KEY="$(sage-server keys new-root-key)"
    """
    typer.echo(new_root_key())


def main() -> None:
    """Do what the arguments say. `__main__.py` is the entry point."""
    app()


def _progress(what: str) -> Any:
    def show(count: int) -> None:
        if sys.stderr.isatty():
            typer.echo(f"\r{count} {what}", err=True, nl=False)

    return show


def _settings() -> Settings:
    try:
        return load_settings()
    except SettingsError as error:
        _fail(str(error), code=2)


def _quiet_settings() -> Settings:
    settings = _settings()
    configure_logging("warning", settings.log_format)
    return settings


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on the fastest loop there is; what can be expected to go wrong gets one line."""
    try:
        return _runner(work)
    except _EXPECTED as error:
        _fail(error.message if isinstance(error, SageError) else str(error))


def _runner(work: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop  # noqa: PLC0415 (not on Windows)
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def _fail(message: str, code: int = 1) -> NoReturn:
    typer.echo(f"sage-server: {message}", err=True)
    raise typer.Exit(code)
