"""Encode the documents of a shard to vectors."""
