"""gfx950 without the hardware: compile, execute, predict."""
