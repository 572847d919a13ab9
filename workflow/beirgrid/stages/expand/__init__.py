"""Predict queries or term weights for the documents of a shard."""
