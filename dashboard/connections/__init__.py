"""The page Connections: addresses, what to paste, which agents were heard, and how deep each one is connected."""
