"""Asks the launcher of a second user to run a program with our standard input, output and error; ends with it.

Started in a program's place as `launcher_client.py SOCKET REQUEST -- COMMAND…`; the environment is the program's own.
The connection is open as long as the program runs: when it closes, the launcher ends the program with all its children.
Loads nothing but the standard library; `launcher.py` is the other side.
"""

from __future__ import annotations

import json
import os
import socket
import sys

LENGTH_BYTES = 4
LONGEST_STATUS = (
    8  # characters of an exit status; the program runs as the launcher's user and may write in its name
)


def main() -> int:
    """Have the program run, and return its exit status."""
    path, request, command = sys.argv[1], json.loads(sys.argv[2]), sys.argv[4:]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as problem:
        sys.stderr.write(f"The launcher of MCP servers cannot be reached at {path}: {problem.strerror}.\n")
        return 111
    message = json.dumps({**request, "command": command, "environment": dict(os.environ)}).encode()
    socket.send_fds(connection, [len(message).to_bytes(LENGTH_BYTES, "big")], [0, 1, 2])
    connection.sendall(message)
    for number in (0, 1, 2):  # theirs now: an end of input must reach the program
        os.close(number)
    status = b""
    while len(status) <= LONGEST_STATUS and (chunk := connection.recv(64)):
        status += chunk
    return int(status) if status.isdigit() and len(status) <= LONGEST_STATUS else 255


if __name__ == "__main__":
    sys.exit(main())
