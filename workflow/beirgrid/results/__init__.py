"""Results: state and scores of cells, published values, and tables of a grid."""
