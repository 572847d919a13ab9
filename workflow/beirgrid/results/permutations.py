"""How many permutations tests draw. The costs of a job follow from it too, so this module imports nothing."""

# Permutations of a test.
PERMUTATIONS = 100_000
# Fewest permutations of the randomised Tukey HSD test.
LEAST = 10_000
# Shuffles of a query's scores in this test, over all queries.
SHUFFLES = 20_000_000


def permutations_of(queries: int) -> int:
    """Return the number of permutations of the Tukey HSD test for a dataset with ``queries`` queries."""
    return max(LEAST, min(PERMUTATIONS, SHUFFLES // queries))
