"""Collections: documents, queries and qrels, from their sources to the files that stages read."""
