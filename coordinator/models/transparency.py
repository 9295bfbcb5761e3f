"""The transparency log of the audit log: one leaf an entry, inner nodes, checkpoints, and where they were sent."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField


class AuditLeaf(models.Model):
    """The leaf of one audit row. Triggers make and number it in the row's own transaction (migration 0047).

    `leaf_index` counts from 0 in commit order; `leaf_hash` (32 bytes) is NULL until it is known: Signalbox writes it
    with the row, the sealing job fills it in for rows that other programs wrote (`by_signalbox` is false for those).
    """

    audit_id = models.BigIntegerField(primary_key=True)
    leaf_index = models.BigIntegerField(null=True, unique=True)
    leaf_hash = models.BinaryField(null=True)
    by_signalbox = models.BooleanField(db_default=False)

    class Meta:
        verbose_name_plural = "audit leaves"
        db_table = "audit_leaves"
        managed = False

    def __str__(self) -> str:
        return f"leaf {self.leaf_index}"


class AuditNode(models.Model):
    """The hash of a complete subtree: `level` is 8, 16, 24 …, `position` counts from 0 in its level."""

    level = models.BigIntegerField()
    position = models.BigIntegerField()
    node_hash = models.BinaryField()

    class Meta:
        db_table = "audit_nodes"
        constraints = (models.UniqueConstraint(fields=["level", "position"], name="sbx_audit_nodes_place"),)

    def __str__(self) -> str:
        return f"node {self.level}/{self.position}"


class AuditCheckpoint(models.Model):
    """A signed state of the log. `note` is the whole signed note, with the witnesses' cosignatures."""

    tree_size = models.BigIntegerField(unique=True)
    root_hash = models.BinaryField()
    note = models.TextField()
    created_at = IsoTextField(db_index=True)

    class Meta:
        db_table = "audit_checkpoints"

    def __str__(self) -> str:
        return f"checkpoint of {self.tree_size}"


class AuditKey(models.Model):
    """A public key that checkpoints of this log were signed with (`name+hash+base64`). The private one is a file."""

    verifier = models.TextField(primary_key=True)
    first_used_at = IsoTextField()

    class Meta:
        db_table = "audit_keys"

    def __str__(self) -> str:
        return self.verifier


class AuditDelivery(models.Model):
    """How far checkpoints, or decisions, were sent to one place outside.

    What went wrong last is in the place's job; `failed_at` and `error` are an older version's.
    """

    place = models.TextField(primary_key=True)
    tree_size = models.BigIntegerField(default=0)
    delivered_at = IsoTextField(null=True)
    failed_at = IsoTextField(null=True)
    error = models.TextField(null=True)

    class Meta:
        verbose_name_plural = "audit deliveries"
        db_table = "audit_deliveries"

    def __str__(self) -> str:
        return f"{self.place} up to {self.tree_size}"
