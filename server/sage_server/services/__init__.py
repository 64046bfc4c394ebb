"""Use cases, one family a file. No service imports another."""
