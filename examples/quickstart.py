"""An agent that remembers, in five lines.

With the offline model it prints:

    No language model is configured. ...
    Kept in archival memory: “The beans are for Anna.”
    From your memory:
    - ..., archival memory: “The beans are for Anna.”...
"""

import sys

import sage_client

with sage_client.connect(*sys.argv[1:], user="quickstart") as client:
    agent = client.agent("main")
    agent.enable()
    print(agent.chat("Remember that the beans are for Anna.").text())
    print(agent.chat("Who are the beans for?").text())
