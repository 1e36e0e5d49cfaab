"""What every port does for whom: the page says what a running system answers, and no more is open than it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.endtoend.ports_table import BEGIN, END, PAGE, table

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


def test_each_port_does_for_each_identity_what_the_page_says(tmp_path: Path) -> None:
    written = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert table(tmp_path) == written, "python tests/endtoend/ports_table.py draws it anew"
