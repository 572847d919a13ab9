"""Search engines: BM25, inner product, impacts, MaxSim."""
