"""Key-value stores of other people, behind one interface: text under a key, and a look that does not block."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .errors import BadConfig, Protocol, Timeout, Unsupported, invalid

__all__ = ["KeyValue", "of_torchrun"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25
#: Bytes of a value that is believed to be ours.
_LONGEST_VALUE = 64 * 1024
#: Added to a key of torch's stores: how often it was set. To look at that never blocks, to get a key that is absent does.
_COUNT = ".count"


class KeyValue:
    """A store with `set` (or `put`) and `get`, under a prefix. Any thread, if the store allows that.

    Takes torch's stores, redis clients, clients of etcd 2 and 3, and whatever behaves like one of them: `get` of a key that is
    absent returns None or raises KeyError. Values are ASCII text, so that stores that decode what they return may be used, too.
    """

    def __init__(self, store: Any, prefix: str) -> None:
        put = getattr(store, "set", None) or getattr(store, "put", None)
        get = getattr(store, "get", None)
        if not callable(put) or not callable(get):
            raise TypeError(f"{type(store).__name__} is no store: it has no `set` (or `put`) and `get`")
        self.store = store
        self.prefix = prefix
        self._put = put
        self._get = get
        self._of_torch = any(kind.__module__.partition(".")[0] == "torch" for kind in type(store).__mro__)

    def below(self, name: str) -> KeyValue:
        """The same store, with a longer prefix."""
        return KeyValue(self.store, f"{self.prefix}/{name}")

    def set(self, key: str, value: str) -> None:
        """Puts text under a key, in place of what was there."""
        if not value.isascii() or len(value) > _LONGEST_VALUE:
            raise invalid("set a key", f"{len(value)} characters; at most {_LONGEST_VALUE} of ASCII")
        path = f"{self.prefix}/{key}"
        self._put(path, value)
        if self._of_torch:
            self.store.add(path + _COUNT, 1)

    def look(self, key: str) -> str | None:
        """The text under a key now; None when there is none."""
        path = f"{self.prefix}/{key}"
        if self._of_torch and self.store.add(path + _COUNT, 0) == 0:
            return None
        try:
            value = self._get(path)
        except Exception as error:
            if isinstance(error, KeyError) or type(error).__name__ == "EtcdKeyNotFound":
                return None
            raise
        if isinstance(value, tuple):  # of etcd 3: value, metadata
            value = value[0]
        value = getattr(value, "value", value)  # of etcd 2
        if value is None:
            return None
        if len(value) > _LONGEST_VALUE:
            raise Protocol(f"{Protocol.code}: read key {path}: its value has {len(value)} bytes", "", f"read key {path}")
        try:
            return value if isinstance(value, str) else bytes(value).decode("ascii")
        except UnicodeDecodeError:
            raise Protocol(f"{Protocol.code}: read key {path}: its value is no text", "", f"read key {path}") from None

    def wait(self, key: str, timeout: float, whose: str, counts: Callable[[str], bool] | None = None) -> str:
        """The text under a key, waited for. Raises `tcpx.Timeout`, which names the key and whose it is.

        counts: whether it is text that is waited for; default: any.
        """
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while (value := self.look(key)) is None or (counts is not None and not counts(value)):
            left = deadline - time.monotonic()
            if left <= 0:
                what = "has not set" if value is None else "has not renewed"
                raise Timeout(
                    f"{Timeout.code}: rendezvous: {whose} {what} the key {self.prefix}/{key} within {timeout:g} s",
                    "",
                    "rendezvous",
                    key,
                )
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return value


def of_torchrun(timeout: float) -> tuple[Any, str]:
    """The store of the job that `torchrun` started this process for, and a prefix that no earlier attempt of it has used."""
    try:
        distributed: Any = importlib.import_module("torch.distributed")
    except ImportError:
        raise Unsupported(
            f"{Unsupported.code}: rendezvous: torch is not installed, and no store was given: pass store=", "", "rendezvous"
        ) from None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"{os.environ.get('TORCHELASTIC_RUN_ID', 'job')}/{attempt}"
    if distributed.is_available() and distributed.is_initialized():
        return distributed.distributed_c10d._get_default_store(), prefix
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        raise BadConfig(
            f"{BadConfig.code}: rendezvous: no store was given, and MASTER_ADDR and MASTER_PORT are not set: "
            "start the program with torchrun, or pass store=, rank= and world_size=",
            "",
            "rendezvous",
        )
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosts = not by_agent and of_environment("RANK") == 0

    def store(**build: bool) -> Any:
        return distributed.TCPStore(
            host,
            int(port),
            is_master=hosts,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
            multi_tenant=hosts,
            **build,
        )

    try:
        try:
            return store(), prefix
        except RuntimeError as error:
            if "libuv" not in str(error):
                raise
            return store(use_libuv=False), prefix  # its default, which builds of distributions such as Debian 13's lack
    except (RuntimeError, ValueError) as error:
        raise Timeout(
            f"{Timeout.code}: rendezvous: no store at {host}:{port} (MASTER_ADDR, MASTER_PORT): {error}", "", "rendezvous"
        ) from error


def of_environment(name: str) -> int:
    """A number that torchrun has set."""
    text = os.environ.get(name)
    if text is None or not text.isdecimal():
        said = "is not set" if text is None else f"is {text!r}"
        raise BadConfig(
            f"{BadConfig.code}: rendezvous: {name} {said}: start the program with torchrun, or pass rank= and world_size=",
            "",
            "rendezvous",
        )
    return int(text)
