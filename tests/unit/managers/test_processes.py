"""What lies between the runtime and its workers: messages in any pieces, references, outcomes, surroundings."""

from __future__ import annotations

import functools
import os
import pickle
import resource
import signal
import socket
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.errors import DefinitionError, RemoteError, ResultError
from arl_tangram.managers.processes.call import Call, Grant
from arl_tangram.managers.processes.frames import HEADER, Assembler, Frame, Kind, oom_kills, receive, send
from arl_tangram.managers.processes.outcome import Ending, RemoteTraceback, failed, returned, value_or_error
from arl_tangram.managers.processes.preparation import interpreter, preparation
from arl_tangram.managers.processes.reference import BodyReference, refer, resolve
from arl_tangram.managers.processes.surroundings import surroundings
from arl_tangram.model.allocation import Allocation

FRAMES = st.builds(Frame, st.sampled_from(Kind), st.binary(max_size=40), st.binary(max_size=300))


def wire(frames: list[Frame]) -> bytes:
    return b"".join(bytes(part) for frame in frames for part in frame.parts())


@given(frames=st.lists(FRAMES, max_size=5), cuts=st.lists(st.integers(1, 50), min_size=1))
def test_messages_arrive_whole_whatever_pieces_they_come_in(frames: list[Frame], cuts: list[int]) -> None:
    assembler, data, heard, turn = Assembler(), wire(frames), [], 0
    while data:
        piece = data[: min(cuts[turn % len(cuts)], len(assembler.room()))]
        assembler.room()[: len(piece)] = piece
        heard += assembler.add(len(piece))
        data, turn = data[len(piece) :], turn + 1
    assert [(f.kind, f.note, bytes(f.load)) for f in heard] == [tuple(f) for f in frames]
    assert assembler.received == len(wire(frames))


def test_what_is_no_message_is_told() -> None:
    for head in (HEADER.pack(99, 0, 0), HEADER.pack(int(Kind.DONE), 0, (1 << 64) - 1)):
        assembler = Assembler()
        assembler.room()[:] = head
        with pytest.raises(ValueError, match=r"message|Kind"):
            list(assembler.add(len(head)))


def test_a_worker_reads_and_writes_messages() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(theirs, Frame(Kind.DONE, b"note", b"load"))
        send(theirs, Frame(Kind.READY, b""))
        theirs.shutdown(socket.SHUT_WR)
        first, second = receive(ours), receive(ours)
        assert first is not None
        assert second is not None
        assert (first.kind, first.note, bytes(first.load)) == (Kind.DONE, b"note", b"load")
        assert second.kind is Kind.READY
        assert receive(ours) is None


def test_the_kernel_tells_how_often_it_was_out_of_memory() -> None:
    assert oom_kills() >= 0


@pytest.fixture
def module() -> types.ModuleType:
    made = types.ModuleType("made_for_this_test")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def function(module: types.ModuleType, qualname: str) -> Callable[[], str]:
    def body() -> str:
        return qualname

    body.__module__, body.__qualname__ = module.__name__, qualname
    return body


def test_a_reference_leads_back_to_the_body(module: types.ModuleType) -> None:
    module.bare = bare = function(module, "bare")
    inner = function(module, "twice")
    once = functools.wraps(inner)(functools.partial(inner))
    module.twice = functools.wraps(once)(functools.partial(once))
    module.Class = type("Class", (), {"method": (method := function(module, "Class.method"))})
    for body, depth in ((bare, 0), (inner, 2), (method, 0)):
        reference = refer("name", body)
        assert reference == BodyReference(module.__name__, body.__qualname__, depth)
        assert resolve(pickle.loads(pickle.dumps(reference))) is body


def test_a_reference_that_leads_elsewhere_is_refused(module: types.ModuleType) -> None:
    body = function(module, "gone")
    with pytest.raises(DefinitionError, match="not found by its name"):
        refer("name", body)
    module.gone = function(module, "gone")
    with pytest.raises(DefinitionError, match="its name now means"):
        refer("name", body)
    with pytest.raises(AttributeError, match="another function here"):
        resolve(BodyReference(module.__name__, "gone", 1))


@pytest.mark.parametrize("spec", [None, "the one of a module"])
def test_only_a_main_module_that_can_be_imported_has_bodies(spec: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    main.__spec__ = spec  # type: ignore[assignment]
    main.own = own = function(main, "own")
    monkeypatch.setitem(sys.modules, "__main__", main)
    if spec is None:
        with pytest.raises(DefinitionError, match="interactively"):
            refer("name", own)
        main.__file__ = __file__
        assert pickle.loads(preparation().program)["init_main_from_path"] == __file__
    assert refer("name", own).module == "__main__"


def test_a_worker_is_started_as_this_program_was() -> None:
    assert interpreter()[0] == sys.executable
    told = pickle.loads(preparation().program)
    assert told["dir"] == os.getcwd()
    assert "" not in told["sys_path"]
    assert "start_method" not in told


def across(told_and_load: tuple[Any, bytes]) -> tuple[Any, BaseException | None]:
    told, load = told_and_load
    return value_or_error("name", pickle.loads(pickle.dumps(told)), memoryview(load))


def test_an_outcome_is_made_again() -> None:
    assert across(returned([1, "two"], 0.5)) == ([1, "two"], None)
    error = ValueError("own")
    error.add_note("a note")
    _, again = across(failed(Ending.RAISED, error))
    assert (type(again), again.args, again.__notes__) == (ValueError, ("own",), ["a note"])
    assert isinstance(again.__cause__, RemoteTraceback)
    assert "a note" in str(again.__cause__)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), StopIteration(2), GeneratorExit()], ids=repr)
def test_what_would_end_the_trainer_is_not_raised_there(error: BaseException) -> None:
    _, again = across(failed(Ending.RAISED, error))
    assert isinstance(again, RemoteError)
    assert again.error == type(error).__name__


def test_a_result_that_cannot_be_made_again_is_an_error() -> None:
    told, load = returned("text", 0.0)
    value, error = value_or_error("name", told, load[:-1])
    assert value is None
    assert isinstance(error, ResultError)


def call(memory_bytes: int = 0, **environment: str) -> Call:
    cores = (min(os.sched_getaffinity(0)),)
    return Call(BodyReference("m", "q", 0), Grant("name", Allocation(1, cores), 1000, memory_bytes), environment)


def test_surroundings_are_those_of_the_call_and_then_those_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "before")
    everywhere, limits = os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_DATA)
    with surroundings(call(1 << 30, OF_THE_CALL="1", KEPT="call"), everywhere):
        assert len(os.sched_getaffinity(0)) == 1
        assert (os.environ["OF_THE_CALL"], os.environ["KEPT"]) == ("1", "call")
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        assert soft > 1 << 30
        assert hard == limits[1]
        signal.setitimer(signal.ITIMER_REAL, 600)
        os.environ["OF_THE_BODY"] = "1"
    assert os.sched_getaffinity(0) == everywhere
    assert resource.getrlimit(resource.RLIMIT_DATA) == limits
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert not {"OF_THE_CALL", "OF_THE_BODY"} & os.environ.keys()
    assert os.environ["KEPT"] == "before"
