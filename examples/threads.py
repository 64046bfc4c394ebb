"""Conversations as objects: several people in one, a copy to try something else, and a private one.

It prints:

    Anna: The frost is over on the 12th of May.
    Ben: Then the beans go out on the 13th.
    the copy has 2 items, Beans and frost goes on
    recall knows: The frost is over on the 12th of May.
    recall knows nothing of the private thread
"""

import sys
import time

import sage_client
from sage_client import ItemKind, NewItem

with sage_client.connect(*sys.argv[1:], user="threads") as client:
    client.agent("main").enable()
    garden = client.conversations.new("Beans and frost", metadata={"season": "2027"})
    garden.append([NewItem.user("The frost is over on the 12th of May.", author="Anna")])
    garden.respond("Then the beans go out on the 13th.", author="Ben").text()

    # Any process can go on with it by its id.
    again = client.conversations.continue_(garden.id)
    for item in again.items(kinds=[ItemKind.USER]):
        print(f"{item.author}: {item.text}")

    copy = again.fork(up_to_seq=2, title="What if the frost comes back?")
    print(f"the copy has {copy.get().message_count} items, {garden.get().title} goes on")

    secret = client.conversations.new("Surprise", private=True)
    secret.append([NewItem.user("Anna gets a greenhouse.")])

    # Messages are indexed in the background, about half a second later.
    while client.memory.stats().pending_count:
        time.sleep(0.1)
    best = client.memory.search("When is the frost over?", conversation_id=garden.id, top_k=1).results[0]
    print("recall knows:", best.memory.text)
    known = [found.memory.text for found in client.memory.search("Who gets a greenhouse?").results]
    if not any("greenhouse" in text for text in known):
        print("recall knows nothing of the private thread")
