"""One module per stage of the workflow."""
