"""`python -m sage_client.cli`."""

from sage_client.cli import main

if __name__ == "__main__":
    main()
