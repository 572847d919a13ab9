"""The number of permutations of the tests. The cost model uses it too, so this module imports nothing."""

PERMUTATIONS = 100_000
# For the randomised Tukey HSD test: the minimum of permutations, and the number of shuffles of a query's scores.
LEAST, SHUFFLES = 10_000, 20_000_000


def permutations_of(queries: int) -> int:
    """Return the number of permutations of the Tukey HSD test for a dataset with ``queries`` queries."""
    return max(LEAST, min(PERMUTATIONS, SHUFFLES // queries))
