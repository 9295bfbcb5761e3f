"""The effects of a tool call: the commands that it runs, the paths that it touches, the hosts that it reaches.

Rules, marks, suggestions and the replay of recorded calls share one description of a call
(`descriptions.describe_call`). It is made of the call's input alone: pure, with no clock and no database. What cannot
be read is part of the description, with the reason.
"""
