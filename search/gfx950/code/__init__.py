"""A program as gfx950 machine code, and what that code uses."""
