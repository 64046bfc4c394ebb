"""A user takes everything along and is erased: the key first, then the rows, on every replica.

With the offline model it prints:

    took along: 2 conversations, 2 blocks, 1 memory
    erased: 2 conversations, 1 key
    afterwards: nothing is known
"""

import sys
import tempfile
from pathlib import Path

import sage_client
from sage_client import NewItem

with (
    sage_client.connect(*sys.argv[1:], user="leaver") as client,
    tempfile.TemporaryDirectory() as folder,
):
    client.agent("main").enable()
    client.agent("main").chat("Remember that the keys are under the mat.").text()
    client.conversations.new("Goodbye").append([NewItem.user("I am moving out.")])

    # Conversations, the agent's own among them, core memory, memories: JSON Lines that `import_` reads.
    taken = client.takeout.export_to(Path(folder) / "leaver.jsonl")
    print(f"took along: {taken.conversations} conversations, {taken.blocks} blocks, {taken.memories} memory")

    # Needs an admin key where authentication is required.
    rows = client.admin.erase_user("leaver").rows_by_table
    print(f"erased: {rows['conversations']} conversations, {rows['user_keys']} key")
    known = list(client.conversations.list()) + list(client.memory.list())
    print("afterwards:", known or "nothing is known")
