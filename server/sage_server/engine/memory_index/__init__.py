"""The index of one user's memories: built from decrypted rows, in RAM only.

`words` cuts texts into terms, `keywords` and `vectors` score, `attributes` filter and know the order of
messages, `dates` reads a question's dates, `evidence` looks at a message's surroundings, `ranking` finds the
best, `user_index` puts them together for a `query`, and `cache` holds the indexes.
"""
