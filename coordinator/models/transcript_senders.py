"""Machines that send transcripts, the outcome, and what of them could not be read."""

from __future__ import annotations

from django.db import models


class TranscriptSender(models.Model):
    """One agent's transcripts on one machine, as one key sends them: what came, and whether it goes on.

    Times are in microseconds since 1970 (UTC).
    """

    id = models.BigAutoField(primary_key=True)
    hostname = models.TextField()  # "": not named
    program = models.TextField()  # coordinator.sessions.agent_programs
    sender = models.TextField()  # the name of the key; "": read on the server itself
    read_count = models.BigIntegerField(default=0)  # readings of files: one that grew counts again
    session_count = models.BigIntegerField(default=0)  # sessions that were new
    event_count = models.BigIntegerField(default=0)  # events that were new
    known_event_count = models.BigIntegerField(default=0)  # events that came again
    first_at_us = models.BigIntegerField()
    received_at_us = models.BigIntegerField(null=True)  # when files were read last; None: none yet
    # What the machine itself reported last; None: it has reported nothing (an older client).
    reported_at_us = models.BigIntegerField(null=True)
    file_count = models.BigIntegerField(null=True)  # transcripts on the machine
    waiting_count = models.BigIntegerField(null=True)  # of these, not sent yet
    is_watching = models.BooleanField(default=False)  # `signalbox import --watch` reported, and has not ended

    class Meta:
        db_table = "transcript_senders"
        constraints = [
            models.UniqueConstraint(fields=["hostname", "program", "sender"], name="transcript_senders_once")
        ]

    def __str__(self) -> str:
        return f"{self.program} on {self.hostname}"


class TranscriptProblem(models.Model):
    """Why something of a file could not be read, or was refused. Gone once the file is read without it."""

    id = models.BigAutoField(primary_key=True)
    transcript_sender = models.ForeignKey(TranscriptSender, models.CASCADE, related_name="problems")
    is_from_machine = (
        models.BooleanField()
    )  # the machine could not send the file; else the server did not read it
    file = models.TextField()  # from the agent's home folder on
    line = models.BigIntegerField(null=True)  # the first one; None: the file as a whole
    reason = models.TextField()
    line_count = models.BigIntegerField()
    found_at_us = models.BigIntegerField()

    class Meta:
        db_table = "transcript_problems"

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"
