"""The application's answer about each client: `Endpoint(accepts=...)`."""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

import tcpx
from tcpx.endpoint import _question
from test_lifetime import run


@pytest.fixture
def client() -> Any:
    with tcpx.Endpoint(listen="127.0.0.1") as endpoint:
        yield endpoint


def server(accepts: Any, **settings: Any) -> tcpx.Endpoint:
    endpoint = tcpx.Endpoint(listen="127.0.0.1", accepts=accepts, **settings)
    endpoint.accept_all()
    return endpoint


def test_the_function_is_told_of_the_client(client: tcpx.Endpoint) -> None:
    asked: list[tcpx.PeerInfo] = []

    def accepts(peer: tcpx.PeerInfo) -> str:
        asked.append(peer)
        return "yes"

    with tcpx.Endpoint(listen="127.0.0.1", accepts=accepts) as listening:
        accepted: list[tcpx.Connection] = []
        accepting = threading.Thread(target=lambda: accepted.append(listening.accept(20)))
        accepting.start()
        client.connect(listening.metadata)
        accepting.join()
        assert asked == [tcpx.PeerInfo("127.0.0.1", 0, "")]
        assert accepted[0].name == ""


@pytest.mark.parametrize("answer", [False, None, 0, ""])
def test_a_client_that_is_refused_hears_why(client: tcpx.Endpoint, answer: object) -> None:
    with server(lambda peer: answer) as listening:
        with pytest.raises(tcpx.Mismatch, match=r"the application that listens does not accept 127\.0\.0\.1"):
            client.connect(listening.metadata)


def test_by_the_name_that_the_client_has_proved(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("a secret that all ranks of the job have\n")
    program = """
import threading, tcpx
with tcpx.Endpoint(listen="127.0.0.1", accepts=lambda peer: peer.name == "secret") as server:
    with tcpx.Endpoint(listen="127.0.0.1") as client:
        threading.Thread(target=client.connect, args=[server.metadata]).start()
        print(server.accept(20).name)
"""
    os.environ["UCCL_TCPX_SECRET_FILE"] = str(secret)
    try:
        ended = run(program)
    finally:
        del os.environ["UCCL_TCPX_SECRET_FILE"]
    assert ended.stdout == "secret\n", ended.stderr


class Untrue:
    """An answer that cannot be asked."""

    def __bool__(self) -> bool:
        raise ValueError("neither")


@pytest.mark.parametrize("error", [ValueError("neither"), SystemExit(3), KeyboardInterrupt()])
def test_an_exception_refuses_the_client_and_is_told(
    client: tcpx.Endpoint, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    told: list[tuple[object, BaseException | None]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda said: told.append((said.object, said.exc_value)))

    def accepts(peer: tcpx.PeerInfo) -> Untrue:
        if isinstance(error, ValueError):
            return Untrue()
        raise error

    with server(accepts) as listening:
        with pytest.raises(tcpx.Mismatch, match="does not accept") as refused:
            client.connect(listening.metadata)
    assert "neither" not in str(refused.value)
    ((asked, raised),) = told
    assert asked is accepts and type(raised) is type(error)


def test_a_slow_answer_holds_up_nobody_else(client: tcpx.Endpoint) -> None:
    first, answers = threading.Event(), threading.Event()

    def accepts(peer: tcpx.PeerInfo) -> bool:
        if first.is_set():
            return True
        first.set()
        return answers.wait(20)

    with server(accepts) as listening, tcpx.Endpoint(listen="127.0.0.1") as other:
        slow = threading.Thread(target=client.connect, args=[listening.metadata])
        slow.start()
        assert first.wait(20)
        other.connect(listening.metadata)
        assert slow.is_alive()
        answers.set()
        slow.join(20)
        assert not slow.is_alive()


def test_the_function_may_close_its_endpoint(client: tcpx.Endpoint) -> None:
    listening = server(lambda peer: listening.close())
    with pytest.raises(tcpx.Error) as refused:
        client.connect(listening.metadata, timeout=20)
    assert not isinstance(refused.value, tcpx.Timeout)
    listening.close()


def test_an_answer_is_not_waited_for_by_close(client: tcpx.Endpoint) -> None:
    asked, answers, ended = threading.Event(), threading.Event(), threading.Event()

    def accepts(peer: tcpx.PeerInfo) -> bool:
        asked.set()
        answers.wait(20)
        ended.set()
        return True

    def connect() -> None:
        with pytest.raises(tcpx.Error):
            client.connect(listening.metadata, timeout=5)

    listening = server(accepts)
    connecting = threading.Thread(target=connect)
    connecting.start()
    assert asked.wait(20)
    listening.close()
    assert not ended.is_set()
    answers.set()
    assert ended.wait(20)
    connecting.join(20)


def test_a_function_that_refers_to_its_endpoint_keeps_it_not() -> None:
    class Owner:
        def __init__(self) -> None:
            self.endpoint = server(self.accepts)

        def accepts(self, peer: tcpx.PeerInfo) -> bool:
            return self.endpoint.metadata != b""

    owner = Owner()
    session = weakref.ref(owner.endpoint.session)
    with tcpx.Endpoint(listen="127.0.0.1") as client:
        client.connect(owner.endpoint.metadata)
    del owner
    gc.collect()
    assert session() is None


def test_garbage_is_collected_where_a_client_is_asked_about(client: tcpx.Endpoint) -> None:
    """The collector may run in the function, and find the endpoint that has asked."""

    class Holder:
        pass

    def accepts(peer: tcpx.PeerInfo) -> bool:
        asked.set()
        assert dropped.wait(20)
        gc.collect()
        ended.set()
        return True

    asked, dropped, ended = threading.Event(), threading.Event(), threading.Event()
    holder: Any = Holder()
    holder.itself, holder.endpoint = holder, server(accepts)
    metadata, session = holder.endpoint.metadata, weakref.ref(holder.endpoint.session)

    def connect() -> None:
        with pytest.raises(tcpx.Error):
            client.connect(metadata, timeout=5)

    connecting = threading.Thread(target=connect)
    connecting.start()
    assert asked.wait(20)
    del holder
    dropped.set()
    assert ended.wait(20) and session() is None
    connecting.join(20)


@pytest.mark.parametrize("closes", ["server.close()", "pass"])
def test_a_process_ends_while_a_client_is_asked_about(closes: str) -> None:
    program = f"""
import threading, time, tcpx
asked = threading.Event()
def accepts(peer):
    asked.set()
    while True:
        time.sleep(0.001)
server = tcpx.Endpoint(listen="127.0.0.1", accepts=accepts)
server.accept_all()
client = tcpx.Endpoint(listen="127.0.0.1")
def connect():
    try:
        client.connect(server.metadata)
    except tcpx.Error:
        pass
threading.Thread(target=connect, daemon=True).start()
assert asked.wait(20)
{closes}
print("ends")
"""
    ended = run(program, timeout=8)
    assert (ended.returncode, ended.stdout) == (0, "ends\n"), ended.stderr


def questions() -> int:
    gc.collect()
    return sum(isinstance(one, functools.partial) and one.func is _question for one in gc.get_objects())


def test_an_endpoint_leaves_no_question_and_nor_does_one_that_is_not_made() -> None:
    before = questions()
    with pytest.raises(tcpx.InvalidArgument):
        tcpx.Endpoint(accepts=bool, max_operations=0)
    assert questions() == before
    tcpx.Endpoint(listen="127.0.0.1", accepts=bool).close()
    assert questions() == before
