"""Asking for an answer in a format, and reading what came instead."""
