"""A machine for tests: a home of its own, and the program signalbox as it would be installed there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.served import ROOT


class Machine:
    """A home of its own, and the program signalbox as it would be installed there."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self.home = home or folder / "home"
        self.program = folder / "bin" / "signalbox"
        self.program.parent.mkdir(parents=True)
        self.home.mkdir(exist_ok=True)
        self.program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from coordinator.client.main import main\nsys.exit(main())\n"
        )
        self.program.chmod(0o755)

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run signalbox there."""
        environment = {"HOME": str(self.home), "PATH": os.defpath}
        return subprocess.run(
            [self.program, *words],
            env=environment,
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
