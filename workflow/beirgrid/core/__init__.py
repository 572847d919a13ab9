"""What every layer uses: errors, files, provenance, progress."""
