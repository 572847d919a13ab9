"""How many permutations the tests draw. The cost model reads it, too, so this module imports nothing."""

PERMUTATIONS = 100_000
# Of the randomised Tukey HSD test: at least so many permutations, and shuffles of the scores of a query, each of which
# takes about 0.1 µs for 17 systems.
LEAST, SHUFFLES = 10_000, 20_000_000


def permutations_of(queries: int) -> int:
    """Return how many permutations the Tukey HSD test draws for a dataset of so many queries."""
    return max(LEAST, min(PERMUTATIONS, SHUFFLES // queries))
