"""A backend that serves many users on one connection.

With `SAGE_AUTH=required` give `connect` an API key as `token`; the rest stays as it is.

It prints:

    ana: ['I am vegetarian.']
    ben: ['I eat everything.']
    sent twice, stored once: 1
    not ana's: NOT_FOUND
    wrong: INVALID_REQUEST in title
"""

import asyncio
import sys
from uuid import uuid4

import sage_client
from sage_client import AsyncSageClient, NewItem


async def handle(service: AsyncSageClient, user: str, text: str) -> str:
    """A request of your own API. A client for a user costs next to nothing."""
    client = service.with_options(user=user)
    thread = await client.conversations.new("Food")
    await thread.append([NewItem.user(text)])
    print(f"{user}:", [item.text async for item in thread.items()])
    return thread.id


async def main() -> None:
    """Two users, and what can go wrong."""
    async with sage_client.connect_async(*sys.argv[1:]) as service:
        await handle(service, "ana", "I am vegetarian.")
        bens = await handle(service, "ben", "I eat everything.")
        ana = service.with_options(user="ana")

        # Your own request id makes a retry safe even after your process died in between.
        mine = str(uuid4())
        made = {(await ana.conversations.new("Drinks", request_id=mine)).id for _ in range(2)}
        print("sent twice, stored once:", len(made))

        try:
            await ana.conversations.get(bens)
        except sage_client.NotFound as error:
            print("not ana's:", error.reason)
        try:
            await ana.conversations.new("x" * 10_000)
        except sage_client.InvalidArgument as error:
            print("wrong:", error.reason, "in", error.field_violations[0].field)


asyncio.run(main())
