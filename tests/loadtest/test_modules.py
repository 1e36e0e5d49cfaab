"""What compiled modules gain, without compiling any."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from loadtest.modules import Gains, Variant, show, variants

COMPILED = ("broker/store/a.py", "broker/store/b.py", "gateway/c.py")


def test_each_module_is_left_out_once_by_default() -> None:
    chosen = variants([], COMPILED)
    assert [one.without for one in chosen] == [(), *[(path,) for path in COMPILED]]
    assert len({one.tree for one in chosen}) == 4


def test_a_folder_leaves_out_all_of_its_modules() -> None:
    assert variants(["broker/store"], COMPILED)[1] == Variant("broker/store", COMPILED[:2])


def test_several_can_be_left_out_of_one_tree() -> None:
    chosen = variants(["broker/store/a.py", "gateway"], COMPILED, together=True)
    assert [one.without for one in chosen] == [(), ("broker/store/a.py", "gateway/c.py")]


@pytest.mark.parametrize("path", ["broker/store/other.py", "broker/sto", "namesrv"])
def test_a_path_without_a_compiled_module_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no compiled module"):
        variants([path], COMPILED)


def test_a_gain_is_the_median_of_ratios_within_a_round() -> None:
    whole = {"publish": [2.0, 4.0, 2.0], "send client": [10.0, 10.0, 10.0]}
    without = {"publish": [2.1, 4.4, 2.2], "send client": [10.0, 10.0, 9.0]}
    gains = Gains({"": whole, "a.py": without})
    assert [(row, round(gain, 3)) for row, gain in gains.of("a.py")] == [("publish", 0.1), ("send client", 0.0)]


def test_the_table_names_the_row_that_gains_most_and_what_failed() -> None:
    told = io.StringIO()
    gains = Gains(
        {"": {"publish": [2.0]}, "a.py": {"publish": [2.2]}, "b.py": {"publish": [2.0]}}, {"c.py": "x\nneeds a.py"}
    )
    show(Console(file=told, width=132), gains)
    shown = told.getvalue()
    assert "10.0%" in shown
    assert "< 1%" in shown
    assert "needs a.py" in shown
    assert "2.00 us" in shown
