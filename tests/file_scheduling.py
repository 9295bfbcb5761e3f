"""How pytest-xdist hands files of tests to its processes, also when one of them crashes.

What xdist 3.8 does itself then: it runs the test that crashed in the next process, which crashes as well; and a process
that replaces another never begins a test that is the only one left, since nobody tells it that none follows.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class FileScheduling(LoadFileScheduling):
    """A file's tests stay in one process. A test that crashes it has failed; the others of its file still run."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a process that ended. Return the test that it ran, None where it had run all of its own."""
        units = self.assigned_work.pop(node)
        crashed = next((test for unit in units.values() for test, done in unit.items() if not done), None)
        if crashed is None:
            return None
        for scope, unit in units.items():
            left = {test: done for test, done in unit.items() if not done and test != crashed}
            if left:
                self.workqueue[scope] = left
        return crashed

    def schedule(self) -> None:
        """Hand out files, as each process has found the tests. Where none is left, tell each that none follows."""
        if self.collection is None:
            super().schedule()
        for node in self.nodes:
            if node in self.registered_collections:
                self._reschedule(node)
