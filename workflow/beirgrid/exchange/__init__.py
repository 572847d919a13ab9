"""Export results: TREC runs with metadata, MTEB's JSON, the Hugging Face hub's YAML, RO-Crates."""
