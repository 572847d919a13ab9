"""The job graph: cells, inputs, params and resources of the rules."""
