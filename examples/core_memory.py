"""Core memory: blocks that are always in the agent's context. Whoever changes one can be seen and undone.

With the offline model it prints:

    human: the user: My name is Bea.
    1 system: ''
    2 agent: '..., the user: My name is Bea.'
    after the undo: ''
    refused: ETAG_MISMATCH
"""

import sys

import sage_client

with sage_client.connect(*sys.argv[1:], user="keeper") as client:
    agent = client.agent("main")
    agent.enable()
    agent.chat("My name is Bea.").text()

    block = client.memory.blocks.get("human")
    print(f"{block.label}: {block.value.partition(', ')[2]}")
    for revision in sorted(client.memory.blocks.revisions("human"), key=lambda one: one.revision):
        print(f"{revision.revision} {revision.actor.value}: {revision.value!r}")

    undone = client.memory.blocks.restore("human", 1)
    print(f"after the undo: {undone.value!r}")
    try:
        client.memory.blocks.update("human", value="The user's name is Ben.", etag=block.etag)
    except sage_client.Aborted as error:
        print("refused:", error.reason)
