"""Proofs of the cluster's key: bound to everything that they are about."""

from __future__ import annotations

from penstock.protocol.logins import server_proof, service_proof


def test_a_proof_is_another_for_each_key_nonce_name_and_side() -> None:
    a, b = b"a" * 32, b"b" * 32
    proofs = [
        proof(key, one, other, name)
        for proof in (service_proof, server_proof)
        for key in (a, b)
        for one in (a, b)
        for other in (a, b)
        for name in ("gateway-1", "gateway-2")
    ]
    assert len(set(proofs)) == len(proofs)
    assert {len(proof) for proof in proofs} == {32}
