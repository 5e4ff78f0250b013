"""Processes that compile, and what they allocate with."""
