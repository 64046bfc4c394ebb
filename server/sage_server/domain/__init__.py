"""Frozen types and pure rules. The standard library only, no I/O."""
