"""Sessions whose agent a runner drives: what it tells is taken, what people want of it is told."""
