"""The page Connections: addresses, settings to paste, agents that reported, what works with each."""
