from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig
from penstock.service.extras import needed_extra


def test_a_module_that_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(InvalidConfig) as refused, needed_extra("trace_export", "otel"):
        import no_such_module_of_ours  # type: ignore[import-not-found]  # noqa: F401
    assert refused.value.message == "trace_export needs no_such_module_of_ours, which is not installed"
    assert refused.value.hint == "python -m pip install 'penstock[otel]'"
