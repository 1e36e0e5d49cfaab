"""The lines of keys in a settings file."""

from __future__ import annotations

from penstock.service.toml_lines import key_lines

TEXT = '''# a comment = 1
mqtt_port = 1883
listen = [
    "tls 0.0.0.0:8883",
    "host = 5",
]
banner = """
port = 7
"""

[broker]  # its settings
default_queues = 8
"odd name" = 1

[ gateway.more ]
port = 9
'''


def test_each_key_and_table_has_the_line_at_which_it_begins() -> None:
    assert key_lines(TEXT) == {
        ("mqtt_port",): 2,
        ("listen",): 3,
        ("banner",): 7,
        ("broker",): 11,
        ("broker", "default_queues"): 12,
        ("broker", "odd name"): 13,
        ("gateway", "more"): 15,
        ("gateway", "more", "port"): 16,
    }


def test_any_text_has_lines_or_none() -> None:
    assert key_lines("") == {}
    assert key_lines("= 5\n[\n]]]\n[a") == {}
