"""One installation for all tests here: they are of one file for one worker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.installed import Installed, install
from support.postgres import public_folder


@pytest.fixture(scope="session")
async def installed(request: pytest.FixtureRequest) -> AsyncIterator[Installed]:
    async with public_folder() as folder:
        yield await install(folder, fresh=request.config.getoption("--fresh"))
