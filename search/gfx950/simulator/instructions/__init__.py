"""What each instruction does, by kind."""
