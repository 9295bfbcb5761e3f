"""Start the client apart from the environment of the agent that calls it.

`signalbox connect` writes it into agents' settings as `python -I -S …/launch.py --settings FILE hook AGENT`. With -I
and -S Python reads no variable, no folder of the project and no `sitecustomize`, so only code of this package
and of Python's own library runs. `--settings` names the connected file; no variable chooses another server then.
"""

from __future__ import annotations

import os
import sys

BLOCK = 2  # the exit code that agents take as "block this call"


def main() -> int:
    """Run the client with this process's arguments; return its exit code, BLOCK where it cannot be loaded."""
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    try:
        from coordinator.client import main as client  # noqa: PLC0415 - needs the path above
    except ImportError as problem:
        sys.stderr.write(f"Signalbox cannot be loaded ({problem}). Run `signalbox connect` again.\n")
        return BLOCK
    return client.main()


if __name__ == "__main__":
    sys.exit(main())
