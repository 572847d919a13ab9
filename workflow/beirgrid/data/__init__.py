"""Collections, runs, published values and checkpoints: what stages read and write."""
