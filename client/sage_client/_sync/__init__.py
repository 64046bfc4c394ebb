# Generated from client/sage_client/_async/__init__.py by scripts/sync_client.py: do not edit.
"""The client without async. Everything here is generated from `_async`."""
