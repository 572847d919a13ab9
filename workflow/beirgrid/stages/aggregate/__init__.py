"""Write the tables of a grid."""
