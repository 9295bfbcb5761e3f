"""Sessions whose agent a runner drives: its updates are stored, people's commands are sent to it."""
