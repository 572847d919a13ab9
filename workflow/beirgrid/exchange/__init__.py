"""Export results: TREC runs, MTEB's JSON, the Hugging Face hub's YAML, and a table for a paper."""
