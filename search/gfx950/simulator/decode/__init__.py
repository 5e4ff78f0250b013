"""From assembly text to instructions that can be executed."""
