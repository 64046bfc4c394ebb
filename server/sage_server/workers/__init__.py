"""The second entrance: what the server does by itself."""
