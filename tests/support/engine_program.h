// A program as written for the RDMA engine of UCCL: every call that both that engine and tcpx::Endpoint have, with the argument
// types of that engine's header. It names no endpoint of ours, so the same text compiles against either.
//
// Source: uccl-project/uccl 1a26edf (2026-03-16), p2p/engine.h and p2p/include/common.h: the last revision in
// which an endpoint is created with a number of CPUs. This file was compiled there, too (-fsyntax-only).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

// State of one end. Vectors have two ranges.
template <class Endpoint>
struct EngineEnd {
  Endpoint& endpoint;
  uint64_t conn = 0;
  std::vector<uint64_t> ids;
  std::vector<void*> data;
  std::vector<void const*> source;
  std::vector<size_t> sizes;

  EngineEnd(Endpoint& made, std::vector<char>& bytes) : endpoint(made) {
    const size_t half = bytes.size() / 2;
    data = {bytes.data(), bytes.data() + half};
    source = {data[0], data[1]};
    sizes = {half, half};
  }
  bool wait(uint64_t transfer) {
    for (bool done = false; !done;) {
      if (!endpoint.poll_async(transfer, &done)) return false;
    }
    return true;
  }
};

template <class Endpoint>
bool engine_send(EngineEnd<Endpoint>& at) {
  uint64_t one = 0, both = 0;
  return at.endpoint.send(at.conn, at.ids[0], at.source[0], at.sizes[0]) &&
         at.endpoint.send_async(at.conn, at.ids[0], at.source[0], at.sizes[0], &one) && at.wait(one) &&
         at.endpoint.sendv(at.conn, at.ids, at.source, at.sizes, at.ids.size()) &&
         at.endpoint.sendv_async(at.conn, at.ids, at.source, at.sizes, at.ids.size(), &both) && at.wait(both);
}

template <class Endpoint>
bool engine_recv(EngineEnd<Endpoint>& at) {
  uint64_t one = 0, both = 0;
  return at.endpoint.recv(at.conn, at.ids[0], at.data[0], at.sizes[0]) &&
         at.endpoint.recv_async(at.conn, at.ids[0], at.data[0], at.sizes[0], &one) && at.wait(one) &&
         at.endpoint.recvv(at.conn, at.ids, at.data, at.sizes, at.ids.size()) &&
         at.endpoint.recvv_async(at.conn, at.ids, at.data, at.sizes, at.ids.size(), &both) && at.wait(both);
}

template <class Endpoint, class Item>
bool engine_write_and_read(EngineEnd<Endpoint>& at, std::vector<Item> const& slots) {
  uint64_t write = 0, read = 0, writes = 0, reads = 0;
  Endpoint& endpoint = at.endpoint;
  return endpoint.write(at.conn, at.ids[0], at.data[0], at.sizes[0], slots[0]) &&
         endpoint.write_async(at.conn, at.ids[0], at.data[0], at.sizes[0], slots[0], &write) && at.wait(write) &&
         endpoint.writev(at.conn, at.ids, at.data, at.sizes, slots, slots.size()) &&
         endpoint.writev_async(at.conn, at.ids, at.data, at.sizes, slots, slots.size(), &writes) && at.wait(writes) &&
         endpoint.read(at.conn, at.ids[0], at.data[0], at.sizes[0], slots[0]) &&
         endpoint.read_async(at.conn, at.ids[0], at.data[0], at.sizes[0], slots[0], &read) && at.wait(read) &&
         endpoint.readv(at.conn, at.ids, at.data, at.sizes, slots, slots.size()) &&
         endpoint.readv_async(at.conn, at.ids, at.data, at.sizes, slots, slots.size(), &reads) && at.wait(reads);
}

/// Two endpoints of this process meet, and one of them sends, writes and reads. Item is the engine's FifoItem.
/// @return the first error; empty: none, and `theirs` has the bytes of `ours`
template <class Endpoint, class Item>
std::string engine_program(Endpoint& here, Endpoint& there, std::vector<char>& ours, std::vector<char>& theirs) {
  EngineEnd<Endpoint> near(here, ours), far(there, theirs);
  const std::vector<uint8_t> metadata = there.get_metadata();
  const std::tuple<std::string, uint16_t, int> address = Endpoint::parse_metadata(metadata);
  bool accepted = false;
  std::string from;
  int gpu = -1;
  std::thread acceptor([&] { accepted = there.accept(from, gpu, far.conn); });
  const bool connected = here.connect(std::get<0>(address), std::get<2>(address), std::get<1>(address), near.conn);
  acceptor.join();
  if (!connected || !accepted) return "connect and accept";

  if (!here.regv(near.source, near.sizes, near.ids) || !there.regv(far.source, far.sizes, far.ids)) return "regv";
  uint64_t again = 0;
  if (!here.reg(near.source[0], near.sizes[0], again) || !here.dereg(again)) return "reg and dereg";

  bool received = false;
  std::thread receiver([&] { received = engine_recv(far); });
  const bool sent = engine_send(near);
  receiver.join();
  if (!sent || !received) return "send and recv";
  if (ours != theirs) return "the bytes that were sent";

  std::vector<std::vector<char>> texts(2, std::vector<char>(sizeof(Item)));
  if (!there.advertise(far.conn, far.ids[0], far.data[0], far.sizes[0], texts[0].data())) return "advertise";
  if (!there.advertisev(far.conn, far.ids, far.data, far.sizes, std::vector<char*>{texts[0].data(), texts[1].data()},
                        texts.size()))
    return "advertisev";
  std::vector<Item> slots(texts.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    deserialize_fifo_item(texts[i].data(), &slots[i]);
    serialize_fifo_item(slots[i], texts[i].data());
  }
  for (char& byte : ours) byte = static_cast<char>(byte ^ 0x5a);
  if (!engine_write_and_read(near, slots)) return "write and read";
  if (ours != theirs) return "the bytes that were written";

  // The other way to connect: metadata, and a thread that accepts.
  uint64_t pooled = 0;
  if (!there.start_passive_accept()) return "start_passive_accept";
  if (!here.add_remote_endpoint(metadata, pooled) || !here.remove_remote_endpoint(pooled)) return "add_remote_endpoint";
  for (const uint64_t id : near.ids) {
    if (!here.dereg(id)) return "dereg";
  }
  return "";
}
