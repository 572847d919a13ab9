"""Find the top documents of each query."""
