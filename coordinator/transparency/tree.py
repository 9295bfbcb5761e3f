"""The log's tree as the database holds it: leaf hashes, and the hashes of every 256 of them, of every 256 of those, …

What is kept of the inner nodes (AuditNode) only saves time: all of it follows from the leaves, and
`LogTree(stores_nodes=False)` does without it.
"""

from __future__ import annotations

from collections import OrderedDict

from coordinator.models import AuditCheckpoint, AuditLeaf, AuditNode
from coordinator.transparency import merkle

HEIGHT = 8  # levels between those that are kept
WIDTH = 1 << HEIGHT


class MissingLeaf(Exception):
    """A leaf that a proof needs is not there, or has no hash: the log was tampered with."""


class LogTree:
    """Reads subtrees; remembers the rows that it has read. `stores_nodes=False` computes everything from the leaves."""

    def __init__(self, *, stores_nodes: bool = True) -> None:
        self._stores_nodes = stores_nodes
        self._rows: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()

    def compute_subtree_hash(self, level: int, position: int) -> bytes:
        """Return the hash of a complete subtree (merkle.Subtree). Raises MissingLeaf."""
        base, above = (level // HEIGHT) * HEIGHT, level % HEIGHT
        first, count = position << above, 1 << above
        row = self.load_subtree_hashes_at_level(base, first // WIDTH)
        hash_row = row[first % WIDTH : first % WIDTH + count]
        if len(hash_row) != count:
            raise MissingLeaf(f"Leaf {(first << base) + (len(hash_row) << base)} is missing in the log.")
        return merkle.hash_complete_subtree_from_parts(hash_row)

    def compute_log_root_hash(self, size: int) -> bytes:
        """Return the root over the first `count_log_entries` leaves. Raises MissingLeaf."""
        return merkle.compute_tree_root(self.compute_subtree_hash, size)

    def load_subtree_hashes_at_level(self, level: int, number: int) -> list[bytes]:
        """Return the hashes at `level` from place number * WIDTH on: WIDTH of them, or as many as there are."""
        key = (level, number)
        if key not in self._rows:
            self._rows[key] = (
                self.load_leaf_hashes(number) if level == 0 else self.load_node_hash_row(level, number)
            )
            if len(self._rows) > 1024:
                self._rows.popitem(last=False)
        return self._rows[key]

    def load_leaf_hashes(self, number: int) -> list[bytes]:
        low = number * WIDTH
        rows = AuditLeaf.objects.filter(leaf_index__gte=low, leaf_index__lt=low + WIDTH).order_by(
            "leaf_index"
        )
        leaf_hashes: list[bytes] = []
        for index, stored in rows.values_list("leaf_index", "leaf_hash"):
            if index != low + len(leaf_hashes) or stored is None or len(stored) != 32:
                break
            leaf_hashes.append(bytes(stored))
        return leaf_hashes

    def load_node_hash_row(self, level: int, number: int) -> list[bytes]:
        low = number * WIDTH
        hashes_by_node: dict[int, bytes] = {}
        if self._stores_nodes:
            rows = AuditNode.objects.filter(level=level, position__gte=low, position__lt=low + WIDTH)
            hashes_by_node = {
                position: bytes(stored) for position, stored in rows.values_list("position", "node_hash")
            }
        node_hashes: list[bytes] = []
        for position in range(low, low + WIDTH):
            try:
                node_hashes.append(
                    hashes_by_node.get(position) or self.compute_stored_node_hash(level, position)
                )
            except MissingLeaf:
                break
        return node_hashes

    def compute_stored_node_hash(self, level: int, position: int) -> bytes:
        """Return the hash of a kept node from the 256 hashes below it. Raises MissingLeaf."""
        row = self.load_subtree_hashes_at_level(level - HEIGHT, position)
        if len(row) != WIDTH:
            raise MissingLeaf(
                f"Leaf {((position * WIDTH) + len(row)) << (level - HEIGHT)} is missing in the log."
            )
        return merkle.hash_complete_subtree_from_parts(row)


def count_log_entries() -> int:
    """Return how many entries the log has."""
    newest = AuditLeaf.objects.filter(leaf_index__isnull=False).order_by("-leaf_index").first()
    return 0 if newest is None else (newest.leaf_index or 0) + 1


def find_newest_checkpoint() -> AuditCheckpoint | None:
    """Return the checkpoint that covers most, or None where nothing is sealed yet."""
    return AuditCheckpoint.objects.order_by("-tree_size").first()


def store_and_count_merkle_nodes(size: int) -> int:
    """Write the inner nodes that the first `count_log_entries` leaves complete and that are not kept yet; return
    how many.
    """
    made_count, level = 0, HEIGHT
    while complete := size >> level:
        newest = (
            AuditNode.objects.filter(level=level)
            .order_by("-position")
            .values_list("position", flat=True)
            .first()
        )
        tree = LogTree()
        missing = range(0 if newest is None else newest + 1, complete)
        for start in range(missing.start, missing.stop, 500):
            some = range(start, min(start + 500, missing.stop))
            AuditNode.objects.bulk_create(
                [
                    AuditNode(
                        level=level,
                        position=node_row,
                        node_hash=tree.compute_stored_node_hash(level, node_row),
                    )
                    for node_row in some
                ],
                ignore_conflicts=True,
            )
            made_count += len(some)
        level += HEIGHT
    return made_count
