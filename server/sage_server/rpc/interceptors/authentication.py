"""Who calls, and whether they may."""

from __future__ import annotations

from urllib.parse import unquote

from sage_server.domain.errors import Reason, SageError
from sage_server.engine.replicas import Replicas
from sage_server.rpc.call import Call, Interceptor
from sage_server.services.authentication import Authentication

AUTHORIZATION = "authorization"
USER = "x-sage-user"


class Authenticate(Interceptor):
    """Finds the caller from the metadata and checks the role that the method needs."""

    name = "authentication"

    def __init__(self, authentication: Authentication, replicas: Replicas) -> None:
        self._authentication = authentication
        self._replicas = replicas

    async def enter(self, call: Call) -> None:
        """UNAUTHENTICATED, PERMISSION_DENIED, or a caller."""
        if self._replicas.stale:
            await self._replicas.sync()
        caller = await self._authentication.authenticate(
            call.text(AUTHORIZATION), _named_user(call), admin=call.method.admin
        )
        if caller.role < call.method.required_role:
            required = call.method.required_role.name
            raise SageError(
                Reason.PERMISSION_DENIED,
                f"This call needs an API key with the role {required}.",
                metadata={"required_role": required},
            )
        call.caller = caller


def _named_user(call: Call) -> str | None:
    """The user in the metadata, percent-decoded. What is no UTF-8 stays what it is: no name, but not none."""
    return unquote(call.text(USER) or "", errors="surrogateescape") or None
