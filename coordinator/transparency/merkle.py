"""The Merkle tree of RFC 6962 §2.1: hashes, proofs and their verification. Knows no database.

A tree over `size` leaves is read through `Subtree`: a function that returns the hash of the complete subtree number
`position` at `level` (level 0: leaf hashes; a subtree at level L covers 2**L leaves).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

Subtree = Callable[[int, int], bytes]

EMPTY_ROOT = hashlib.sha256(b"").digest()
HASH_LENGTH = 32  # bytes


class ProofError(Exception):
    """A proof does not show what it should. The text says why."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf: SHA-256 of 0x00 and the entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node: SHA-256 of 0x01 and both children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def hash_complete_subtree_from_parts(hashes: Sequence[bytes]) -> bytes:
    """Return the hash of a complete subtree from those of its 2**n parts, in order."""
    level = list(hashes)
    while len(level) > 1:
        level = [node_hash(level[at], level[at + 1]) for at in range(0, len(level), 2)]
    return level[0]


def compute_tree_root(subtree: Subtree, size: int) -> bytes:
    """Return the root of the tree's first `size` leaves."""
    return compute_leaf_range_hash(subtree, 0, size) if size else EMPTY_ROOT


def inclusion_path(subtree: Subtree, index: int, size: int) -> list[bytes]:
    """Return the audit path of leaf `index` in the tree of `size` leaves, from the leaf's sibling up (§2.1.1)."""
    if not 0 <= index < size:
        raise ValueError(f"A tree of {size} leaves has no leaf {index}.")
    return build_inclusion_path(subtree, index, 0, size)


def consistency_path(subtree: Subtree, old: int, new: int) -> list[bytes]:
    """Return what shows that the tree of `old` leaves is the beginning of that of `new` leaves (§2.1.2)."""
    if not 0 <= old <= new:
        raise ValueError(f"A tree of {new} leaves cannot continue one of {old}.")
    return build_consistency_subproof(subtree, old, 0, new, is_whole=True) if 0 < old < new else []


def largest_power_of_two_below(size: int) -> int:
    """Return the largest power of two that is smaller than `size`."""
    return 1 << (size - 1).bit_length() - 1


def compute_leaf_range_hash(subtree: Subtree, low: int, high: int) -> bytes:
    size = high - low
    if size & (size - 1) == 0:  # the splits of the standard keep such a range aligned
        level = size.bit_length() - 1
        return subtree(level, low >> level)
    middle = low + largest_power_of_two_below(size)
    return node_hash(
        compute_leaf_range_hash(subtree, low, middle), compute_leaf_range_hash(subtree, middle, high)
    )


def build_inclusion_path(subtree: Subtree, index: int, low: int, high: int) -> list[bytes]:
    if high - low == 1:
        return []
    middle = low + largest_power_of_two_below(high - low)
    if index < middle:
        return [
            *build_inclusion_path(subtree, index, low, middle),
            compute_leaf_range_hash(subtree, middle, high),
        ]
    return [
        *build_inclusion_path(subtree, index, middle, high),
        compute_leaf_range_hash(subtree, low, middle),
    ]


def build_consistency_subproof(
    subtree: Subtree, old: int, low: int, high: int, *, is_whole: bool
) -> list[bytes]:
    if old == high:
        return [] if is_whole else [compute_leaf_range_hash(subtree, low, high)]
    middle = low + largest_power_of_two_below(high - low)
    if old <= middle:
        return [
            *build_consistency_subproof(subtree, old, low, middle, is_whole=is_whole),
            compute_leaf_range_hash(subtree, middle, high),
        ]
    return [
        *build_consistency_subproof(subtree, old, middle, high, is_whole=False),
        compute_leaf_range_hash(subtree, low, middle),
    ]


def require_valid_inclusion_proof(
    entry_hash: bytes, index: int, size: int, path: Sequence[bytes], expected: bytes
) -> None:
    """Raise ProofError unless leaf `index` of the tree with this root has that hash (RFC 9162 §2.1.3.2)."""
    if not 0 <= index < size:
        raise ProofError(f"Leaf {index} is not in a tree of {size} leaves.")
    require_hash_lengths([entry_hash, *path])
    computed_hash = entry_hash
    for sibling, is_left in iterate_path_hashes_with_side(index, size - 1, path):
        computed_hash = node_hash(sibling, computed_hash) if is_left else node_hash(computed_hash, sibling)
    if computed_hash != expected:
        raise ProofError("The entry's hash does not lead to the root of the checkpoint.")


def require_valid_consistency_proof(
    old: int, new: int, path: Sequence[bytes], old_root: bytes, new_root: bytes
) -> None:
    """Raise ProofError unless the tree with `old_root` is the beginning of that with `new_root`.

    RFC 9162 §2.1.4.2.
    """
    if not 0 <= old <= new:
        raise ProofError(f"A tree of {new} leaves does not continue one of {old}.")
    if old in {0, new}:
        require_empty_path_and_equal_roots(old, path, old_root, new_root if old == new else EMPTY_ROOT)
        return
    if not path:
        raise ProofError("The proof is empty.")
    require_hash_lengths(path)
    siblings = list(path) if old & (old - 1) else [old_root, *path]
    low, high = old - 1, new - 1
    while low & 1:
        low, high = low >> 1, high >> 1
    of_old = of_new = siblings[0]
    for sibling, is_left in iterate_path_hashes_with_side(low, high, siblings[1:]):
        of_old = node_hash(sibling, of_old) if is_left else of_old
        of_new = node_hash(sibling, of_new) if is_left else node_hash(of_new, sibling)
    if of_old != old_root:
        raise ProofError("The older tree is not the beginning of the newer one: something in it was changed.")
    if of_new != new_root:
        raise ProofError("The proof does not lead to the newer root.")


def require_empty_path_and_equal_roots(
    old: int, path: Sequence[bytes], old_root: bytes, expected: bytes
) -> None:
    if path:
        raise ProofError("The empty tree, and trees of one size, need no proof, and this one has hashes.")
    if old_root != expected:
        raise ProofError(
            "Two trees of the same size have different roots."
            if old
            else "The root of the empty tree is wrong."
        )


def require_hash_lengths(hashes: Sequence[bytes]) -> None:
    if any(len(given_hash) != HASH_LENGTH for given_hash in hashes):
        raise ProofError("The proof holds something that is not a hash of 32 bytes.")


def iterate_path_hashes_with_side(low: int, high: int, path: Sequence[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each hash of a path on its way up, and whether it is the left one of its pair."""
    for sibling in path:
        if high == 0:
            raise ProofError("The proof has more hashes than the tree has levels.")
        is_left = bool(low & 1) or low == high
        yield sibling, is_left
        while is_left and not low & 1 and low:
            low, high = low >> 1, high >> 1
        low, high = low >> 1, high >> 1
    if high:
        raise ProofError("The proof has fewer hashes than the tree has levels.")
