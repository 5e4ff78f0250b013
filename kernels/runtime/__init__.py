"""From a call to its launches: operands, planner, plan, runner, graphs."""
