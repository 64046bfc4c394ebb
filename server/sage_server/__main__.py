"""`python -m sage_server` is `sage-server`."""

from sage_server.cli import main

main()
