"""What the scores of a grid show: uncertainty, significance, means over datasets, reproducibility."""
