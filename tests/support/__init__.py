"""Real things that tests need: tiny models, free ports, processes."""
