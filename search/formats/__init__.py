"""File formats of neighbouring projects, written from tuned tables."""
