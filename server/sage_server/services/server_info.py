"""What this server is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sage_server.engine.replicas import Replicas
from sage_server.ports.keys import RootKeys
from sage_server.ports.stores import DatabaseInfo, DatabaseProbe, Replica


@dataclass(frozen=True)
class ServerInfo:
    """Nothing secret."""

    me: Replica
    replicas: Sequence[Replica]
    embedded: bool
    database: DatabaseInfo
    root_key_id: str
    authentication_required: bool


class ServerInformation:
    """Gathers it."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        probe: DatabaseProbe,
        root_keys: RootKeys,
        embedded: bool,
        authentication_required: bool,
    ) -> None:
        self._replicas = replicas
        self._probe = probe
        self._root_keys = root_keys
        self._embedded = embedded
        self._authentication_required = authentication_required

    async def get(self) -> ServerInfo:
        """As things are now."""
        replicas = await self._replicas.live()
        me = self._replicas.me
        return ServerInfo(
            me=next((replica for replica in replicas if replica.id == me.id), me),
            replicas=replicas,
            embedded=self._embedded,
            database=await self._probe.check(),
            root_key_id=self._root_keys.current_id,
            authentication_required=self._authentication_required,
        )
