"""Connections: see `tcpx.Connection`."""

from .endpoint import Connection

__all__ = ["Connection"]
