"""The tree of RFC 6962 against its own definition, known answers, and proofs that were tampered with."""

from __future__ import annotations

import hashlib

import pytest

from coordinator.transparency import merkle
from coordinator.transparency.log_check import CompactMerkleTree

# The reference tree of Certificate Transparency's own tests: eight leaves and the roots of its first n.
LEAVES = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                                           "606162636465666768696a6b6c6d6e6f")]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def tree_of(leaves: list[bytes]) -> merkle.Subtree:
    hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
    return lambda level, position: merkle.hash_complete_subtree_from_parts(
        hashes[position << level : (position + 1) << level]
    )


def by_definition(leaves: list[bytes]) -> bytes:
    """Return the root as §2.1 defines it, split by split."""
    if len(leaves) < 2:
        return merkle.leaf_hash(leaves[0]) if leaves else hashlib.sha256(b"").digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return merkle.node_hash(by_definition(leaves[:split]), by_definition(leaves[split:]))


@pytest.mark.parametrize("size", range(1, 9))
def test_the_roots_of_the_reference_tree(size: int) -> None:
    assert merkle.compute_tree_root(tree_of(LEAVES), size).hex() == ROOTS[size - 1]


def test_the_empty_tree_has_the_hash_of_nothing() -> None:
    assert merkle.compute_tree_root(tree_of([]), 0) == hashlib.sha256(b"").digest()


def test_roots_of_all_sizes_are_as_defined_however_they_are_computed() -> None:
    leaves = [bytes([number]) for number in range(70)]
    growing = CompactMerkleTree()
    for size in range(1, 71):
        growing.add_merkle_leaf_hash(merkle.leaf_hash(leaves[size - 1]))
        assert (
            merkle.compute_tree_root(tree_of(leaves), size)
            == growing.current_merkle_root()
            == by_definition(leaves[:size])
        )


def test_every_leaf_of_every_tree_has_a_proof_and_no_other_leaf_has() -> None:
    leaves = [bytes([number]) for number in range(40)]
    tree = tree_of(leaves)
    for size in range(1, 41):
        root = merkle.compute_tree_root(tree, size)
        for index in range(size):
            path = merkle.inclusion_path(tree, index, size)
            merkle.require_valid_inclusion_proof(merkle.leaf_hash(leaves[index]), index, size, path, root)
            with pytest.raises(merkle.ProofError):
                merkle.require_valid_inclusion_proof(merkle.leaf_hash(b"another"), index, size, path, root)


def test_every_tree_continues_every_smaller_one() -> None:
    tree = tree_of([bytes([number]) for number in range(40)])
    for new in range(41):
        for old in range(new + 1):
            path = merkle.consistency_path(tree, old, new)
            merkle.require_valid_consistency_proof(
                old, new, path, merkle.compute_tree_root(tree, old), merkle.compute_tree_root(tree, new)
            )


def broken(path: list[bytes]) -> list[list[bytes]]:
    """Return what a forger could make of a path: a bit turned, a hash more, one less, two that changed places."""
    made = [[*path, b"\0" * 32], [b"\0" * 32, *path]]
    for at, one in enumerate(path):
        made.append([*path[:at], bytes([one[0] ^ 1]) + one[1:], *path[at + 1 :]])
        made.append([*path[:at], *path[at + 1 :]])
    if len(path) > 1:
        made.append([path[1], path[0], *path[2:]])
    return made


def test_a_proof_that_was_tampered_with_shows_nothing() -> None:
    leaves = [bytes([number]) for number in range(21)]
    tree = tree_of(leaves)
    root = merkle.compute_tree_root(tree, 21)
    for index in range(21):
        entry, path = merkle.leaf_hash(leaves[index]), merkle.inclusion_path(tree, index, 21)
        for other in broken(path):
            with pytest.raises(merkle.ProofError):
                merkle.require_valid_inclusion_proof(entry, index, 21, other, root)
        for wrong in (index - 1, index + 1, 21, -1):
            with pytest.raises(merkle.ProofError):
                merkle.require_valid_inclusion_proof(entry, wrong, 21, path, root)
    for old in range(1, 21):
        path = merkle.consistency_path(tree, old, 21)
        for other in broken(path):
            with pytest.raises(merkle.ProofError):
                merkle.require_valid_consistency_proof(
                    old, 21, other, merkle.compute_tree_root(tree, old), root
                )


def test_trees_that_differ_do_not_continue_each_other() -> None:
    one, other = tree_of([b"a", b"b", b"c", b"d"]), tree_of([b"a", b"x", b"c", b"d"])
    for old in (2, 3, 4):
        path = merkle.consistency_path(other, old, 4)
        with pytest.raises(merkle.ProofError):
            merkle.require_valid_consistency_proof(
                old, 4, path, merkle.compute_tree_root(one, old), merkle.compute_tree_root(other, 4)
            )
    with pytest.raises(merkle.ProofError):
        merkle.require_valid_consistency_proof(
            4, 3, [], merkle.compute_tree_root(one, 4), merkle.compute_tree_root(one, 3)
        )
