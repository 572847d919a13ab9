"""The report of a grid: one HTML page with everything that it needs in itself."""
