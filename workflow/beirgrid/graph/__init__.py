"""The job graph: paths, cells, inputs, resources."""
