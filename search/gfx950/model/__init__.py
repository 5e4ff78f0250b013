"""How long a program may take on a gfx950."""
