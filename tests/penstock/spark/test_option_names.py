"""The typed names are those that the source and the sink read."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from penstock.errors import InvalidConfig
from penstock.spark import option_names, options
from penstock.spark.option_names import ReadOptions, WriteOptions
from penstock.spark.sink import options as sink_options

SHORT = "add it to penstock/spark/option_names.py"


def test_each_option_has_a_typed_name_and_no_other_has() -> None:
    assert set(ReadOptions.__annotations__) == set(options.NAMES), SHORT
    assert set(WriteOptions.__annotations__) == set(sink_options.NAMES), SHORT


def test_words_that_an_editor_offers_are_taken() -> None:
    hints = get_type_hints(ReadOptions, vars(option_names))
    for word in get_args(hints["payload"]):
        assert options.parse({"subscribe": "a", "payload": word}, stream=True).payload == word
    with pytest.raises(InvalidConfig, match=" or ".join(get_args(hints["payload"])[:1])):
        options.parse({"subscribe": "a", "payload": "nothing"}, stream=True)
