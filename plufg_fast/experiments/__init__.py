"""Experiments: each a function first, a command second."""
