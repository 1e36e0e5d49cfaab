from __future__ import annotations

from conformance_table import PAGE, marks, page, rows, shown_by


def numbers() -> set[tuple[str, bool]]:
    own = {(row.number, row.part == "mqtt311") for row in rows()}
    return own | {(number, True) for row in rows() for number in row.old}


def test_the_page_is_what_the_generator_prints() -> None:
    assert PAGE.read_text() == page(), "run: python tests/house/conformance_table.py"


def test_every_statement_that_a_server_can_keep_has_a_test() -> None:
    found = marks()
    assert [row.number for row in rows() if row.status == "kept" and not shown_by(row, found)] == []


def test_what_a_test_shows_does_apply() -> None:
    found = marks()
    assert [row.number for row in rows() if row.status.startswith("does not") and shown_by(row, found)] == []


def test_every_number_of_an_older_version_has_a_test_of_its_own() -> None:
    shown = {mark.number for mark in marks() if mark.is_old}
    assert [number for row in rows() if row.status == "kept" for number in row.old if number not in shown] == []


def test_every_mark_names_a_statement() -> None:
    known = numbers()
    unknown = [f"{mark.file}::{mark.test} {mark.number}" for mark in marks() if (mark.number, mark.is_old) not in known]
    assert unknown == []


def test_no_statement_of_an_older_version_stands_in_two_rows() -> None:
    every = [number for row in rows() for number in row.old] + [row.number for row in rows() if row.part == "mqtt311"]
    assert sorted(every) == sorted(set(every))
