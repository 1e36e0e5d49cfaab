"""Keys: every word and the unique id is known, by topic, newest stretch and sealed ones alike."""

from __future__ import annotations

import random
from itertools import chain

import numpy as np
import pytest

from broker.store.index_chunk import KEY_DTYPE, KeyRuns, Sealed
from broker.store.key_index import SLICES, KeyIndex, holds_key, key_hash, key_row, keys_of
from penstock.protocol.message import encode_properties

PROPERTIES = encode_properties({"KEYS": "order-1 red", "UNIQ_KEY": "0A1B"})


def sealed(keys: KeyIndex, position: int) -> list[tuple[int, int]]:
    """Hash and position of all records that a chunk up to ``position`` gets, in its order."""
    rows = np.concatenate(list(keys.sealed_before(position)), dtype=KEY_DTYPE)
    runs = KeyRuns(len(rows), lambda begin, end: rows[begin:end].tobytes())
    return [(int(one), at) for one, run in zip(rows["hash"], runs, strict=True) for at in run]


def recent(keys: KeyIndex, wanted: int) -> list[int]:
    """Positions of the unsealed records with a hash."""
    return list(chain.from_iterable(keys.recent(wanted)))


def test_a_record_is_known_by_its_whole_key_each_word_and_its_unique_id() -> None:
    wanted = {key_hash("t", key) for key in (b"order-1 red", b"order-1", b"red", b"0A1B")}
    assert set(keys_of("t", PROPERTIES)) == wanted
    assert keys_of("t", b"") == keys_of("t", b"TAGS\x01KEYS") == ()


def test_a_hit_is_checked_against_the_key_itself() -> None:
    assert all(holds_key(PROPERTIES, key) for key in (b"order-1 red", b"order-1", b"red", b"0A1B"))
    assert not any(holds_key(PROPERTIES, key) for key in (b"order", b"re", b"", b"1B", b"blue"))


def test_a_key_in_base64_is_known_by_all_of_it() -> None:
    properties = encode_properties({"KEYS_BASE64": "/wA=", "UNIQ_KEY": "0A1B"})
    assert set(keys_of("t", properties)) == {key_hash("t", key) for key in (b"/wA=", b"0A1B")}
    assert holds_key(properties, b"/wA=")
    assert not holds_key(properties, b"wA")


def test_the_same_key_of_another_topic_is_another_key() -> None:
    assert key_hash("t", b"k") != key_hash("u", b"k")


def test_slices_end_to_end_are_sorted_whatever_is_added_between_them() -> None:
    rng, keys = random.Random(7), KeyIndex()
    wanted = [(rng.choice([0, 5, 1 << 31, (1 << 32) - 1, rng.getrandbits(32)]), at) for at in range(2000)]
    for one, position in wanted:
        keys.add([one], position)
    found = []
    for some in keys.sealed_before(2000):
        found += [(int(row["hash"]), int(row["first"])) for row in some]
        keys.add([1], 2000 + len(found))
    assert found == sorted(wanted)
    assert SLICES > 1


@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_run_of_records_is_known_as_each_of_them_would_be(count: int) -> None:
    together, apart = KeyIndex(), KeyIndex()
    together.add_rows([key_row(one, 1 << 33, 200, count) for one in (7, (1 << 32) - 1)])
    for number in range(count):
        apart.add((7, (1 << 32) - 1), (1 << 33) + number * 200)
    first, second = [sealed(keys, 1 << 34) for keys in (together, apart)]
    assert first == second
    assert len(first) == 2 * count
    assert recent(together, 7) == recent(apart, 7)
    assert sum(len(some) for some in together.sealed_before(1 << 34)) == 2, "one row each, however long the run"


@pytest.mark.parametrize("end", range(0, 1200, 50))
def test_a_run_may_be_sealed_in_part(end: int) -> None:
    together, apart = KeyIndex(), KeyIndex()
    for hashes, first, count in (((7, 9), 0, 4), ((7,), 400, 1), ((9, 7), 500, 6)):
        together.add_rows([key_row(one, first, 100, count) for one in hashes])
        for number in range(count):
            apart.add(hashes, first + 100 * number)
    here, alone = [sealed(keys, end) for keys in (together, apart)]
    assert here == alone
    for keys in (together, apart):
        keys.drop_before(Sealed(0, 0, end, 1, 1))
    left = [[recent(keys, one) for one in (7, 9)] for keys in (together, apart)]
    assert left[0] == left[1]
    assert len(here) + len(left[0][0]) + len(left[0][1]) == 21, "no record is forgotten, none is known twice"


def test_sealing_takes_what_lies_before_a_position_sorted_by_hash() -> None:
    keys = KeyIndex()
    for position, one in enumerate((7, 3, 7, 1)):
        keys.add([one], position * 100)
    assert sealed(keys, 300) == [(3, 100), (7, 0), (7, 200)]
    chunk = Sealed(0, 0, 300, 1, 1)
    keys.drop_before(chunk)
    assert (recent(keys, 1), recent(keys, 7), keys.chunks) == ([300], [], [chunk])
    assert (keys.chunks_before(299), keys.chunks_before(300)) == ([], [chunk])
    keys.forget_chunk(chunk)
    assert keys.chunks == []
