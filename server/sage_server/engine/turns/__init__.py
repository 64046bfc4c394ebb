"""Running turns: the context of a step, what the model makes of it, what its tools do, and the end."""
