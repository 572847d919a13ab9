"""One's own evaluation set: documents, queries, pools, judgements, agreement, and what the judgements can tell."""
