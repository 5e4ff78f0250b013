"""Shapes, search spaces, and the legal points of both."""
