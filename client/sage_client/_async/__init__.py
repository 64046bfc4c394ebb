"""The client, written once: `_sync` is generated from here by scripts/sync_client.py.

That script rewrites tokens, not meaning. What both clients can share lives outside this folder, and what is
written here keeps to what the script knows: await, async def, async for, async with, asyncio.sleep, grpc.aio.
"""
