"""The Python module of UCCL's p2p engine, on `tcpx.Endpoint`: ``from tcpx import uccl as p2p`` runs programs written for it.

Names, argument order and tuples are those of the wheel uccl 0.1.1 and of later sources; docs/uccl.md has what differs ("From
UCCL's Python module"). Addresses are numbers, sizes bytes. After an error a call returns False, or a tuple that begins with it;
`last_error` and the logger `tcpx.uccl` have the reason. Calls without an `ok` raise `Refused`. Memory registered by its address
must stay until `dereg` has returned True. Any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from ._uccl.descs import NO_ID, XferDesc, pack, unpack
from ._uccl.names import FloatType, XferHandle, current_gpu, get_oob_ip, read_metadata, refused_ipc, without_conn
from ._uccl.report import Refused, last_error, reports
from ._uccl.transfers import READ, RECV, SEND, WRITE, Transfers
from .endpoint import Endpoint as _Endpoint
from .endpoint import Notification
from .errors import invalid

__all__ = ["Endpoint", "FloatType", "Notification", "Refused", "XferDesc", "XferHandle", "get_oob_ip", "last_error"]

kUndefined, kFloat16, kBFloat16, kFloat32, kFloat8E4M3FN, kFloat8E5M2 = FloatType

_CONNECT_TIMEOUT = 30.0
_Ints = Sequence[int]
_Data = Sequence[bytes]
_OkId = tuple[bool, int]


class Endpoint:
    """UCCL's `Endpoint`.

    local_gpu_idx: the GPU; default: torch's current one, else 0. num_cpus: cores it may use; 0: all. Raises `tcpx.Error`.
    """

    def __init__(self, local_gpu_idx: int | None = None, num_cpus: int = 0) -> None:
        self._endpoint = _Endpoint(current_gpu() if local_gpu_idx is None else local_gpu_idx, num_cpus=num_cpus)
        self._core = self._endpoint.session.core
        self._under_way = Transfers(self._core)
        self._memories = self._under_way.memories

    def typed(self) -> _Endpoint:
        """The endpoint below, which closes when nobody keeps it any more, or by its `close`."""
        return self._endpoint

    # ---- connections

    @reports((False, 0))
    def connect(
        self, remote_ip_addr: str, remote_gpu_bdf: str | int | None = None, remote_port: int = -1, *, remote_gpu_idx: int = 0
    ) -> _OkId:
        """(ok, conn_id). The GPU is what `parse_metadata` says, text or number. Waits up to 30 s."""
        gpu = str(remote_gpu_idx if remote_gpu_bdf is None else remote_gpu_bdf)
        if not gpu.isdecimal():
            raise invalid("connect", f"GPU {gpu!r}, which is no number: name it as parse_metadata does")
        return True, self._under_way.hand_out(self._core.connect(remote_ip_addr, int(gpu), remote_port, _CONNECT_TIMEOUT))

    @reports((False, "", 0, 0))
    def accept(self) -> tuple[bool, str, int, int]:
        """(ok, address, GPU, conn_id) of the next that connects. Waits until somebody does."""
        connection = self._endpoint.accept()
        return True, connection.peer, connection.remote_gpu, self._under_way.hand_out(connection.id)

    @reports(False)
    def start_passive_accept(self) -> bool:
        """Accepts connections from now on without `accept`."""
        self._core.start_accepting()
        return True

    def get_metadata(self) -> bytes:
        """What another process needs for `add_remote_endpoint`, or for `connect` after `parse_metadata`."""
        return bytes(self._core.metadata())

    @staticmethod
    @reports(("", 0, ""))
    def parse_metadata(metadata: bytes) -> tuple[str, int, str]:
        """(address, port, GPU) for `connect`. An empty address and port 0 for what is no metadata."""
        address, port, gpu = read_metadata(bytes(memoryview(metadata)))
        return address, port, str(gpu)

    @reports((False, 0))
    def add_remote_endpoint(self, metadata_bytes: bytes) -> _OkId:
        """(ok, conn_id). The same endpoint has the same connection until it is removed. Waits up to 30 s."""
        return True, self._under_way.hand_out_remote(bytes(memoryview(metadata_bytes)), _CONNECT_TIMEOUT)

    @reports(False)
    def remove_remote_endpoint(self, conn_id: int) -> bool:
        """Transfers of the connection that are under way fail."""
        self._under_way.remove_connection(conn_id)
        return True

    def conn_id_of_rank(self, rank: int) -> int:
        """2**64 - 1, for none: connections have no ranks."""
        return NO_ID

    # ---- memory

    @reports((False, 0))
    def reg(self, ptr: int, size: int, floatType: FloatType = FloatType.kUndefined) -> _OkId:
        """(ok, mr_id)."""
        return True, self._memories.add(index(ptr), index(size))

    @reports((False, list[int]()))
    def regv(self, ptrs: _Ints, sizes: _Ints) -> tuple[bool, list[int]]:
        """(ok, mr_ids): of all, or of none."""
        if len(ptrs) != len(sizes):
            raise invalid("register memory", f"{len(ptrs)} addresses, {len(sizes)} sizes")
        return True, self._memories.add_all([(index(ptr), index(size)) for ptr, size in zip(ptrs, sizes)])

    @reports(False)
    def dereg(self, mr_id: int) -> bool:
        """Withdraws what was advertised of the memory, and waits for transfers that use it."""
        self._memories.remove(mr_id)
        return True

    def register_memory(self, tensor_list: Sequence[Any]) -> list[XferDesc]:
        """Descriptors of tensors, which stay alive until `deregister_memory`. Raises `Refused` for what is none."""
        return self._memories.add_buffers(tensor_list)

    def deregister_memory(self, desc_list: Sequence[XferDesc]) -> None:
        """Ends registrations of `register_memory`. Errors are logged."""
        for desc in desc_list:
            self._deregister(desc)

    @reports(None, "deregister_memory")
    def _deregister(self, desc: XferDesc) -> None:
        self._memories.remove(desc.mr_id)

    def get_serialized_descs(self, desc_list: Sequence[XferDesc]) -> bytes:
        """Descriptors as bytes for another process. Raises `Refused` for what is none."""
        return pack(desc_list)

    def deserialize_descs(self, serialized_bytes: bytes) -> list[XferDesc]:
        """Descriptors of another process. Raises `Refused` for bytes that are none."""
        return unpack(serialized_bytes)

    def advertise(self, *args: int, **named: int) -> tuple[bool, bytes]:
        """(ok, 64 bytes) of advertise(mr_id, ptr, size), for all, or advertise(conn_id, mr_id, ptr, size), for one connection."""
        return self._advertise(*without_conn("advertise", args, named, ("mr_id", "ptr", "size")))

    def advertisev(self, *args: Any, **named: Any) -> tuple[bool, list[bytes]]:
        """(ok, list) of advertisev(mr_id_v, ptr_v, size_v, num_iovs), or the same after conn_id."""
        return self._advertisev(*without_conn("advertisev", args, named, ("mr_id_v", "ptr_v", "size_v", "num_iovs")))

    @reports((False, b""), "advertise")
    def _advertise(self, conn_id: int | None, mr_id: int, ptr: int, size: int) -> tuple[bool, bytes]:
        return True, self._under_way.advertise(conn_id, [mr_id], self._under_way.one(mr_id, ptr, size))[0]

    @reports((False, list[bytes]()), "advertisev")
    def _advertisev(self, conn_id: int | None, mr_ids: _Ints, ptrs: _Ints, sizes: _Ints, count: int) -> tuple[bool, list[bytes]]:
        return True, self._under_way.advertise(conn_id, mr_ids, self._under_way.many(mr_ids, ptrs, sizes, count))

    # ---- two-sided transfers: sends meet the other end's receives in order, and both name as many bytes

    @reports(False)
    def send(self, conn_id: int, mr_id: int, ptr: int, size: int) -> bool:
        """Returns when the memory may be changed again."""
        return self._under_way.perform(SEND, conn_id, self._under_way.one(mr_id, ptr, size))

    @reports(False)
    def recv(self, conn_id: int, mr_id: int, ptr: int, size: int) -> bool:
        """Returns when the bytes are there."""
        return self._under_way.perform(RECV, conn_id, self._under_way.one(mr_id, ptr, size))

    @reports((False, 0))
    def send_async(self, conn_id: int, mr_id: int, ptr: int, size: int) -> _OkId:
        """(ok, transfer_id) of `send`."""
        return self._under_way.begin(SEND, conn_id, self._under_way.one(mr_id, ptr, size))

    @reports((False, 0))
    def recv_async(self, conn_id: int, mr_id: int, ptr: int, size: int) -> _OkId:
        """(ok, transfer_id) of `recv`."""
        return self._under_way.begin(RECV, conn_id, self._under_way.one(mr_id, ptr, size))

    @reports(False)
    def sendv(self, conn_id: int, mr_id_v: _Ints, data_ptr_v: _Ints, size_v: _Ints, num_iovs: int) -> bool:
        """`send` of several ranges as one. The other end may cut them differently."""
        return self._under_way.perform(SEND, conn_id, self._under_way.many(mr_id_v, data_ptr_v, size_v, num_iovs))

    @reports(False)
    def recvv(self, conn_id: int, mr_id_v: _Ints, data_ptr_v: _Ints, size_v: _Ints, num_iovs: int) -> bool:
        """`recv` into several ranges as one."""
        return self._under_way.perform(RECV, conn_id, self._under_way.many(mr_id_v, data_ptr_v, size_v, num_iovs))

    @reports((False, 0))
    def sendv_async(self, conn_id: int, mr_id_v: _Ints, data_ptr_v: _Ints, size_v: _Ints, num_iovs: int) -> _OkId:
        """(ok, transfer_id) of `sendv`."""
        return self._under_way.begin(SEND, conn_id, self._under_way.many(mr_id_v, data_ptr_v, size_v, num_iovs))

    @reports((False, 0))
    def recvv_async(self, conn_id: int, mr_id_v: _Ints, data_ptr_v: _Ints, size_v: _Ints, num_iovs: int) -> _OkId:
        """(ok, transfer_id) of `recvv`."""
        return self._under_way.begin(RECV, conn_id, self._under_way.many(mr_id_v, data_ptr_v, size_v, num_iovs))

    # ---- one-sided transfers: to and from what the other end advertised. It may be longer, and never shorter

    @reports(False)
    def write(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: bytes) -> bool:
        """Returns when the bytes are in place at the other end."""
        return self._under_way.perform(WRITE, conn_id, *self._under_way.pairs([mr_id], [ptr], [size], [meta], 1))

    @reports(False)
    def read(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: bytes) -> bool:
        """Returns when the bytes are here."""
        return self._under_way.perform(READ, conn_id, *self._under_way.pairs([mr_id], [ptr], [size], [meta], 1))

    @reports((False, 0))
    def write_async(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: bytes) -> _OkId:
        """(ok, transfer_id) of `write`."""
        return self._under_way.begin(WRITE, conn_id, *self._under_way.pairs([mr_id], [ptr], [size], [meta], 1))

    @reports((False, 0))
    def read_async(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: bytes) -> _OkId:
        """(ok, transfer_id) of `read`."""
        return self._under_way.begin(READ, conn_id, *self._under_way.pairs([mr_id], [ptr], [size], [meta], 1))

    @reports(False)
    def writev(self, conn_id: int, mr_id_v: _Ints, ptr_v: _Ints, size_v: _Ints, meta_blob_v: _Data, num_iovs: int) -> bool:
        """`write` of several ranges, each to its own."""
        return self._under_way.perform(WRITE, conn_id, *self._under_way.pairs(mr_id_v, ptr_v, size_v, meta_blob_v, num_iovs))

    @reports(False)
    def readv(self, conn_id: int, mr_id_v: _Ints, ptr_v: _Ints, size_v: _Ints, meta_blob_v: _Data, num_iovs: int) -> bool:
        """`read` of several ranges, each from its own."""
        return self._under_way.perform(READ, conn_id, *self._under_way.pairs(mr_id_v, ptr_v, size_v, meta_blob_v, num_iovs))

    @reports((False, 0))
    def writev_async(self, conn_id: int, mr_id_v: _Ints, ptr_v: _Ints, size_v: _Ints, meta_blob_v: _Data, num_iovs: int) -> _OkId:
        """(ok, transfer_id) of `writev`."""
        return self._under_way.begin(WRITE, conn_id, *self._under_way.pairs(mr_id_v, ptr_v, size_v, meta_blob_v, num_iovs))

    @reports((False, 0))
    def readv_async(self, conn_id: int, mr_id_v: _Ints, ptr_v: _Ints, size_v: _Ints, meta_blob_v: _Data, num_iovs: int) -> _OkId:
        """(ok, transfer_id) of `readv`."""
        return self._under_way.begin(READ, conn_id, *self._under_way.pairs(mr_id_v, ptr_v, size_v, meta_blob_v, num_iovs))

    @reports((False, 0))
    def transfer(
        self, conn_id: int, op_name: str, local_desc_list: Sequence[XferDesc], remote_desc_list: Sequence[XferDesc]
    ) -> _OkId:
        """(ok, transfer_id): "write" or "read" each local range to or from the remote one at its place in the list.

        Raises `Refused` for another name, an unknown connection, and lists of different lengths or of anything else.
        """
        kind = {"write": WRITE, "read": READ}.get(op_name)
        if kind is None:
            raise Refused("transfer", f"Invalid op_name: {op_name!r}")
        if not self._under_way.knows(conn_id):
            raise Refused("transfer", f"Invalid conn_id: {conn_id!r}")
        if len(local_desc_list) != len(remote_desc_list):
            raise Refused("transfer", f"{len(local_desc_list)} local descriptors, {len(remote_desc_list)} remote ones")
        pairs = [(local, remote) for local, remote in zip(local_desc_list, remote_desc_list) if local.size]
        if not all(local.size <= remote.size for local, remote in pairs):
            raise invalid("transfer", "a local descriptor is longer than the remote one at its place")
        ranges = [self._memories.range(local.mr_id, local.addr, local.size) for local, _ in pairs]
        return self._under_way.begin(kind, conn_id, ranges, [remote.place() for _, remote in pairs])

    @reports((False, True))
    def poll_async(self, transfer_id: int) -> tuple[bool, bool]:
        """(True, False) while it is pending; (True, True) once when it has ended well; else (False, True), so that loops end."""
        return True, self._under_way.poll(transfer_id)

    # ---- notifications, named after those of UCCL's NIXL back-end

    @reports(False)
    def send_notif(self, conn_id: int, msg: bytes, name: str = "") -> bool:
        """Says something to the other end's application: up to 1 MiB, and 256 bytes of name."""
        self._core.notify(self._under_way.core_id(conn_id), name.encode(), bytes(memoryview(msg)))
        return True

    def get_notifs(self) -> list[Notification]:
        """What the other ends have said since the last call; `connection` is our conn_id."""
        return [one._replace(connection=self._under_way.hand_out(one.connection)) for one in self._endpoint.notifications()]

    def __repr__(self) -> str:
        return "<tcpx.uccl.Endpoint>"

    # ---- calls for memory that processes of a host share

    connect_local = refused_ipc("connect_local")
    accept_local = refused_ipc("accept_local")
    send_ipc = refused_ipc("send_ipc")
    send_ipc_async = refused_ipc("send_ipc_async")
    recv_ipc = refused_ipc("recv_ipc")
    recv_ipc_async = refused_ipc("recv_ipc_async")
    advertise_ipc = refused_ipc("advertise_ipc")
    advertisev_ipc = refused_ipc("advertisev_ipc")
    write_ipc = refused_ipc("write_ipc")
    write_ipc_async = refused_ipc("write_ipc_async")
    writev_ipc = refused_ipc("writev_ipc")
    writev_ipc_async = refused_ipc("writev_ipc_async")
    read_ipc = refused_ipc("read_ipc")
    read_ipc_async = refused_ipc("read_ipc_async")
    readv_ipc = refused_ipc("readv_ipc")
    readv_ipc_async = refused_ipc("readv_ipc_async")
