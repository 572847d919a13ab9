"""Build what is searched: a Lucene index, or an index of a shard of vectors."""
