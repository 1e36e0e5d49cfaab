"""Errors: one code each, the same on both ends of the wire, and useful to a person."""

from __future__ import annotations

import gc
import weakref

import pytest

from penstock import errors
from penstock.errors import (
    AWAY,
    BY_CODE,
    InternalError,
    NoRoute,
    NotLeader,
    PenstockError,
    SendManyError,
    TimedOut,
    Unavailable,
    from_wire,
)
from penstock.protocol.requests.servers import Ping
from penstock.protocol.wire import FrameReader, decode_result, encode_error, join

CLASSES = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, PenstockError)]


def test_every_error_has_a_code_of_its_own() -> None:
    own = [one for one in CLASSES if one is not PenstockError]
    assert sorted(BY_CODE) == sorted(one.code for one in own)
    assert len(set(BY_CODE.values())) == len(own)


@pytest.mark.parametrize("cls", sorted(BY_CODE.values(), key=lambda cls: cls.code))
def test_an_error_comes_off_the_wire_as_it_went_on(cls: type[PenstockError]) -> None:
    made = cls("what happened", hint="what to do") if cls is not SendManyError else cls("what happened")
    back = from_wire(made.code, made.message, made.hint)
    assert type(back) is cls
    assert (str(back), back.fault, back.retryable, back.unknown) == (
        str(made),
        made.fault,
        made.retryable,
        made.unknown,
    )


@pytest.mark.parametrize("cls", BY_CODE.values())
def test_every_error_says_whose_fault_it_is_and_what_it_means(cls: type[PenstockError]) -> None:
    assert cls.fault in ("client", "server")
    assert (cls.__doc__ or "").strip()
    assert not (cls.fault == "client" and cls.retryable), "sending the same wrong request again cannot help"


def test_what_is_unknown_of_a_write_is_so_on_both_ends_of_the_wire() -> None:
    lost = NotLeader("the lead went with it under way", hint="b:10911")
    lost.unknown = True
    late = TimedOut("not sent")
    late.unknown = False
    for error in (lost, late, NotLeader("elsewhere", hint="b:10911"), TimedOut("late")):
        [frame] = FrameReader().receive(join(encode_error(7, error)))
        back = decode_result(frame, Ping)
        assert isinstance(back, PenstockError)
        assert (type(back), str(back), back.unknown) == (type(error), str(error), error.unknown)


def test_who_does_not_lead_says_who_does_and_counts_as_away() -> None:
    assert NotLeader("elsewhere", hint="b:10911").leader == "b:10911"
    assert {one.code for one in CLASSES if issubclass(one, Unavailable)} == AWAY


def test_the_hint_stands_in_brackets() -> None:
    assert str(NoRoute("nobody has it")) == "nobody has it"
    assert str(NoRoute("nobody has it", hint="create it")) == "nobody has it (create it)"


def test_the_advice_on_several_errors_has_a_line_of_its_own() -> None:
    assert NoRoute("one", hint="create it").told == "one (create it)"
    assert NoRoute("two:\n  a\n  b", hint="create it").told == "two:\n  a\n  b\n       create it"
    assert NoRoute("one", hint="create it\nor wait").told == "one\n       create it\n       or wait"


def test_the_hint_of_not_leader_is_the_leaders_address() -> None:
    error = from_wire(11, "node b leads", "host-b:10911")
    assert isinstance(error, NotLeader)
    assert error.leader == "host-b:10911"
    assert NotLeader("nobody leads").leader == ""


def test_an_error_that_is_handed_on_as_a_value_keeps_nothing_of_where_it_was_raised() -> None:
    """Else a refused request, with a megabyte in it, was there until the collector came by."""

    class Work:
        pass

    def refuse(work: Work) -> PenstockError:
        try:
            try:
                raise OSError("no room")
            except OSError as error:
                raise NoRoute("nobody has it", hint="create it") from error
        except NoRoute as error:
            return error.as_result()

    work = Work()
    gone = weakref.ref(work)
    gc.disable()
    try:
        result = refuse(work)
        del work
        assert gone() is None
    finally:
        gc.enable()
    assert str(result) == "nobody has it (create it)"


def test_a_code_of_a_newer_server_is_an_internal_error_that_names_it() -> None:
    error = from_wire(9999, "new trouble", "update")
    assert type(error) is InternalError
    assert str(error) == "error 9999 of a newer server: new trouble (update)"


def test_only_a_deadline_leaves_a_write_unknown_by_itself() -> None:
    assert TimedOut("late").unknown
    assert isinstance(TimedOut("late"), TimeoutError)
    assert not Unavailable("no connection").unknown


def test_failures_of_a_send_are_told_one_by_one() -> None:
    error = SendManyError("1 of 2 failed", ("receipt", None), {1: NoRoute("no")})
    assert error.receipts == ("receipt", None)
    assert isinstance(error.failures[1], NoRoute)
    assert SendManyError("all").failures == {}
