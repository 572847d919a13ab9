"""How many permutations tests draw. The costs of a job follow from it too, so this module imports nothing."""

# Permutations of a test. For the randomised Tukey HSD test: the fewest, and the shuffles of a query's scores in all.
PERMUTATIONS, LEAST, SHUFFLES = 100_000, 10_000, 20_000_000


def permutations_of(queries: int) -> int:
    """Return the number of permutations of the Tukey HSD test for a dataset with ``queries`` queries."""
    return max(LEAST, min(PERMUTATIONS, SHUFFLES // queries))
