"""What the services need from outside, as Protocols. A docstring here is an obligation."""
