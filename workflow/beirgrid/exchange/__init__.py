"""Export results: TREC runs with metadata, MTEB's JSON, and the Hugging Face hub's YAML."""
