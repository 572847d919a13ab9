"""Faster replacements of PyTorch and transformers functions, behind the switch ``kernels``.

Results differ from the documented functions by rounding. With ``kernels: plain`` (``Runtime.kernels``), none is used.
``docs/performance.md`` lists the gain of each.
"""
