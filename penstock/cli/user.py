"""``penstock user``: the users of a password file.

Passwords are asked for at the prompt or read from standard input, never from the command line, where every process
could see them. Commands that change the file do it one after the other, each under its lock. The file is replaced in
one step and keeps its owner and mode; a new one is readable by its owner only. A gateway that uses it takes the change
within seconds.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from penstock.access.passwords import (
    PASSWORD_BYTES_MAX,
    SALT_BYTES,
    SECRET_BYTES,
    SIGNING_BYTES_MAX,
    SIGNING_BYTES_MIN,
    Hashed,
    Users,
    check_user_name,
    format_passwords,
    hash_password,
    is_long,
    parse_passwords,
)
from penstock.access.scram import ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN, derive_keys, prepared_password
from penstock.cli.display import json_option, print_json
from penstock.cli.secret_files import ask_secret, replace_file
from penstock.errors import InvalidConfig
from penstock.world import new_secret

file_option = click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    envvar="PENSTOCK_GATEWAY_PASSWORD_FILE",
    show_envvar=True,
    help="The password file.",
)

scram_option = click.option(
    "--scram/--no-scram",
    default=True,
    show_default=True,
    help="Also store keys for SCRAM-SHA-256, with which a client proves its password without sending it.",
)
iterations_option = click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS,
    show_default=True,
    help="How slow SCRAM is, for the client at each login and for a thief of the file.",
)


@click.group()
def user() -> None:
    """Add, change, list and remove users."""


@user.command()
@click.argument("name")
@file_option
@scram_option
@iterations_option
def add(name: str, file: Path, scram: bool, iterations: int) -> None:
    """Add a user; the password is asked for, or read from standard input.

    \b
    Examples:
      penstock user add alice --file /etc/penstock/passwords
      pass show alice | penstock user add alice --file /etc/penstock/passwords
      penstock user add sensor --iterations 4096 --file /etc/penstock/passwords
    """
    check_user_name(name)
    if file.exists():
        _expect(file, _read(file), name, is_new=True)  # before the prompt for a password
    hashed = _new_hash(iterations if scram else 0)
    with _changing(file) as users:
        _expect(file, users, name, is_new=True)
        users.by_name[name] = hashed
    click.echo(f"{name} added to {file}")


@user.command()
@click.argument("name")
@file_option
@scram_option
@iterations_option
def passwd(name: str, file: Path, scram: bool, iterations: int) -> None:
    """Change a user's password.

    \b
    Examples:
      penstock user passwd alice --file /etc/penstock/passwords
    """
    _expect(file, _read(file), name)
    hashed = _new_hash(iterations if scram else 0)
    with _changing(file) as users:
        _expect(file, users, name)
        users.by_name[name] = hashed._replace(signing=users.by_name[name].signing)
    click.echo(f"{name} has a new password")


@user.command()
@click.argument("name")
@file_option
@click.option("--own", is_flag=True, help="Ask for the key, or read it from standard input, instead of making one.")
@click.option("--revoke", is_flag=True, help="Remove the key: signatures by it are no longer valid.")
def key(name: str, file: Path, own: bool, revoke: bool) -> None:
    """Give a user a secret key for RocketMQ's clients, and print it.

    The name is their AccessKey. A key that was there before ends. The file keeps it in clear: its reader can sign.

    \b
    Examples:
      penstock user key billing --file /etc/penstock/passwords
      pass show billing-key | penstock user key billing --own --file /etc/penstock/passwords
      penstock user key billing --revoke --file /etc/penstock/passwords
    """
    _expect(file, _read(file), name)
    secret = "" if revoke else ask_secret("Secret key", twice=True) if own else new_secret()[:20].hex()
    if not revoke and not SIGNING_BYTES_MIN <= len(secret.encode()) <= SIGNING_BYTES_MAX:
        raise InvalidConfig(f"a secret key has {SIGNING_BYTES_MIN} to {SIGNING_BYTES_MAX} bytes")
    with _changing(file) as users:
        _expect(file, users, name)
        users.by_name[name] = users.by_name[name]._replace(signing=secret.encode())
    if revoke or own:
        click.echo(f"{name} has {'no secret key any more' if revoke else 'a new secret key'}")
    else:
        click.echo(secret)


@user.command()
@click.argument("name")
@file_option
def remove(name: str, file: Path) -> None:
    """Remove a user: within seconds its connections end, and new ones are refused.

    \b
    Examples:
      penstock user remove alice --file /etc/penstock/passwords
    """
    _expect(file, _read(file), name)
    with _changing(file) as users:
        _expect(file, users, name)
        del users.by_name[name]
    click.echo(f"{name} removed")


@user.command("list")
@file_option
@json_option
def list_users(file: Path, as_json: bool) -> None:
    """List the users.

    \b
    Examples:
      penstock user list --file /etc/penstock/passwords
    """
    for name, hashed in sorted(_read(file).by_name.items()):
        if as_json:
            print_json({"user": name, "scram": hashed.scram is not None, "key": bool(hashed.signing)})
        else:
            click.echo(name)


def _expect(file: Path, users: Users, name: str, *, is_new: bool = False) -> None:
    if is_new and name in users.by_name:
        raise InvalidConfig(f"there is a user {name}", hint="`penstock user passwd` changes the password")
    if not is_new and name not in users.by_name:
        raise InvalidConfig(f"there is no user {name} in {file}")


def _new_hash(iterations: int) -> Hashed:
    """Asks for a password. ``iterations``: of SCRAM, 0 to keep nothing for it."""
    password = ask_secret("Password", twice=True)
    if not password:
        raise InvalidConfig("a password has at least one character")
    if "\0" in password:
        raise InvalidConfig("a password has no NUL", hint="HMAC cannot tell a NUL at the end from none")
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise InvalidConfig(f"a password has at most {PASSWORD_BYTES_MAX:,} bytes", hint="no login carries more")
    hashed = hash_password(password.encode(), new_secret()[:SALT_BYTES])
    if not iterations:
        return hashed
    if is_long(prepared_password(password.encode())):
        click.echo(
            "this password is too long for SCRAM (64 bytes): no SCRAM keys are kept, and its user logs in by password",
            err=True,
        )
        return hashed
    return hashed._replace(scram=derive_keys(password.encode(), new_secret()[:SALT_BYTES], iterations))


def _read(file: Path) -> Users:
    try:
        return parse_passwords(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file}: {getattr(error, 'strerror', None) or 'not text'}") from None
    except InvalidConfig as error:
        raise InvalidConfig(f"{file}: {error.message}", hint=error.hint) from None


@contextmanager
def _changing(file: Path) -> Iterator[Users]:
    """The users under a lock; written at the end."""
    target = file.resolve()  # a link stays one
    try:
        descriptor = _lock(target)
    except OSError as error:
        raise InvalidConfig(f"{file} cannot be written: {error.strerror}") from None
    try:
        users = _read(target)
        yield users
        users.secret = users.secret or new_secret()[:SECRET_BYTES]
        replace_file(target, format_passwords(users), os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _lock(file: Path) -> int:
    """Waits for the lock of the file, which is made where there is none. Who had the lock has replaced the file: then
    the lock is that of a file which is gone."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                return descriptor
        os.close(descriptor)
