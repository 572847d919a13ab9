"""The report of a grid: one self-contained HTML page."""
