"""Writing what requests to models used and cost, and what models cost."""
