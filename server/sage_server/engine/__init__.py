"""Machinery that several services share."""
