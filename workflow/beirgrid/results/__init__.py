"""Results: the state and the scores of cells, published values, and the tables of a grid."""
