"""Permission requests: their states, verdicts and what an approval covers."""
