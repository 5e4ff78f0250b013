"""Measure on a GPU: lanes, the process that measures, checks, finals."""
