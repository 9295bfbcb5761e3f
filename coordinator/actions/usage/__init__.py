"""Writing prices and what sessions cost."""
