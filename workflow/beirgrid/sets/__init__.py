"""Evaluation sets of your own: documents, queries, pools, judgements, agreement and statistical power."""
