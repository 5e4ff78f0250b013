"""Placeholder."""
BINDERS: dict = {}
