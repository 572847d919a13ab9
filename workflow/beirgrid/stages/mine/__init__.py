"""Find hard negatives for training queries."""
