"""Words that an editor offers are words that the source takes; names are compared in tests/house/test_options.py."""

from __future__ import annotations

from typing import get_args, get_type_hints

from penstock.spark import option_names
from penstock.spark.option_names import ReadOptions
from penstock.spark.payloads import PAYLOADS


def test_each_payload_is_offered_and_no_other_is() -> None:
    hints = get_type_hints(ReadOptions, vars(option_names))
    assert set(get_args(hints["payload"])) == set(PAYLOADS)
