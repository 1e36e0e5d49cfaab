"""Signatures of RocketMQ's clients: HMAC-SHA1 over the values of a command's fields, in the order of their names, and
its body. Pure.

A signature covers neither the command's code, nor the names of its fields, nor where one value ends, and it has no
time. So it proves the sender's key, and that the covered values are unchanged. Only TLS keeps an eavesdropper from
sending a signed command again.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from typing import Final

from remoting.frames import Command

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
_LATE: Final = "_UNIQUE_KEY_QUERY"
"""A field that clients before 4.9.4 add to a command that is signed already."""


def signature(command: Command, secret: bytes, without: str = "") -> str:
    """The signature of a command by a secret key, without a field."""
    fields = command.fields
    values = [fields[name] for name in sorted(fields) if name not in (SIGNATURE, without)]
    return b64encode(hmac.digest(secret, "".join(values).encode() + command.body, hashlib.sha1)).decode()


def is_signed(command: Command, secret: bytes) -> bool:
    """Whether a command has been signed by a secret key."""
    shown = command.fields.get(SIGNATURE, "").encode()
    if hmac.compare_digest(signature(command, secret).encode(), shown):
        return True
    return _LATE in command.fields and hmac.compare_digest(signature(command, secret, _LATE).encode(), shown)
