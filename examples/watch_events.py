"""What all agents of a user do, followed by another process, which goes on after a restart without a gap.

It prints:

    first process: accepted 1, typing 2
    second process: message 3, done 4
"""

import sys
from itertools import islice

import sage_client
from sage_client import EventChannel, TurnDone, TurnEvent

CHANNELS = [EventChannel.TURN, EventChannel.PROACTIVE]


def named(event: TurnEvent) -> str:
    """`done 4`."""
    return f"{type(event).__name__.removeprefix('Turn').lower()} {event.event_id}"


with sage_client.connect(*sys.argv[1:], user="watcher") as client:
    agent = client.agent("main")
    agent.enable()
    agent.chat("Thank you.").text()

    with client.watch(after_event_id=0, channels=CHANNELS) as watch:
        print("first process:", ", ".join(named(event) for event in islice(watch, 2)))
        cursor = watch.cursor  # keep it in your database

    rest: list[str] = []
    with client.watch(after_event_id=cursor, channels=CHANNELS) as watch:
        for event in watch:
            rest.append(named(event))
            if isinstance(event, TurnDone):
                break
    print("second process:", ", ".join(rest))
