"""Memories and documents in one search, and why it found them.

It prints:

    reading, chunking, embedding, storing
    archival The slugs ate my lettuce again.
      score 1.00: cosine ..., words ate lettuce
    document Sow beans after the last frost.
      score ...: cosine ..., words none
    in the garden since 2026: ['The slugs ate my lettuce again.']
"""

import sys
from datetime import UTC, datetime

import sage_client
from sage_client import IngestDone, IngestProgress

with sage_client.connect(*sys.argv[1:], user="searcher") as client:
    written = client.memory.insert("The slugs ate my lettuce again.", tags=["garden"])

    stages: list[str] = []
    for event in client.memory.documents.ingest(b"# Beans\n\nSow beans after the last frost.", title="Beans"):
        match event:
            case IngestProgress(stage=stage) if stage.value not in stages:
                stages.append(stage.value)
            case IngestDone():
                print(", ".join(stages))

    # The token makes sure that the search sees the write, on whichever replica it lands.
    found = client.memory.search("What ate my lettuce?", at_least_as_fresh=written.memory_token, top_k=2)
    for result in found.results:
        print(result.memory.source.value, result.memory.text.splitlines()[-1])
        words = " ".join(result.matched_terms) or "none"
        print(f"  score {result.score:.2f}: cosine {result.vector_score:.2f}, words {words}")

    since = datetime(2026, 1, 1, tzinfo=UTC)
    tagged = client.memory.search("What happened?", tags=["garden"], after=since)
    print("in the garden since 2026:", [result.memory.text for result in tagged.results])
