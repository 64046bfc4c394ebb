"""Sage's server. `bootstrap` builds it from `settings`; the folders are the path of a request."""

from importlib.metadata import version

__version__ = version("sage-memory")
