"""The jobs of a run: forked, followed, and the systems that they made opened again."""
