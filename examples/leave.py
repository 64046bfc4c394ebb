"""A user takes everything along and is erased: the key first, then the rows, on every replica.

It prints:

    1 conversation, 2 items in leaver.jsonl
    erased: 1 conversations, 2 items, keys: 1
    afterwards: []
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
    thread = client.conversations.new("Goodbye")
    thread.append([NewItem.user("I am moving out."), NewItem.assistant("I will miss you.")])

    file = Path(folder) / "leaver.jsonl"
    done = client.conversations.export_to(file)
    print(f"{done.conversations} conversation, {done.items} items in {file.name}")

    # Needs an admin key where authentication is required.
    erasure = client.admin.erase_user("leaver")
    rows = erasure.rows_by_table
    print(f"erased: {rows['conversations']} conversations, {rows['items']} items, keys: {rows['user_keys']}")
    print("afterwards:", list(client.conversations.list()))
