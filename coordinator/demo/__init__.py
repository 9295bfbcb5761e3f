"""A believable week, for newcomers and for screenshots: who is in it, what they do, and how it is written.

`cast` names people, agents, servers; `tasks` tells what a session goes through, step by step; `week` plans who
does what when; `fill` writes it; `live` keeps a small fleet working through the real HTTP API.

`fill` writes straight to the models, as the importers do and for the same reason: it records a past in which
no action took place, with its own times. Nothing else outside coordinator.actions writes.
"""
