"""Score the pairs of a first stage, each once."""
