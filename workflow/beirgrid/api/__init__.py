"""The Python interface: grids and models in training, evaluated from a notebook or a script."""
