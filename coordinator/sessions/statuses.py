"""The sets of sessions' statuses, said once, in the order in which lists show them."""

from __future__ import annotations

from coordinator.models import Session

AT_WORK = (Session.Status.RUNNING, Session.Status.STOPPING)
# Something is still to come of it: an idle one waits for its next run.
LIVE = (Session.Status.RUNNING, Session.Status.PENDING, Session.Status.IDLE, Session.Status.STOPPING)
ENDED = (Session.Status.FINISHED, Session.Status.ERROR, Session.Status.STOPPED)
