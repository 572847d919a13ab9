"""Write the page of a grid."""
