"""Implementations of the ports. Only `bootstrap` imports them."""
