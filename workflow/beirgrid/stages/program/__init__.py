"""Index and search with a program of one's own."""
