#include "net/soft/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include "tests/support/ok.h"

namespace tcpx::soft {
namespace {

using testing::must;

HandleInfo handle_info(const char* host) {
  HandleInfo info;
  info.addresses = *resolve(host, 4567);
  info.data_sockets = 4;
  info.chunk_bytes = 524288;
  info.cookie = {{1, 2}};
  return info;
}

TEST(SoftWire, HandleRoundTripsInBothFamilies) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto back = must(decode_handle(encode_handle(handle_info(host))));
    ASSERT_EQ(back.addresses.size(), 1u);
    EXPECT_EQ(back.addresses.front().to_string(), handle_info(host).addresses.front().to_string());
    EXPECT_EQ(back.data_sockets, 4u);
    EXPECT_EQ(back.chunk_bytes, 524288u);
    EXPECT_EQ(back.cookie, (Cookie{{1, 2}}));
  }
}

TEST(SoftWire, AHandleMayNameAnotherAddressForControlSockets) {
  EXPECT_TRUE(decode_handle(encode_handle(handle_info("127.0.0.1")))->control_addresses.empty());
  for (const char* host : {"127.0.0.2", "fd00::2"}) {
    HandleInfo info = handle_info("127.0.0.1");
    info.control_addresses = *resolve(host, 7654);
    const auto back = must(decode_handle(encode_handle(info)));
    EXPECT_EQ(back.addresses.front().to_string(), "127.0.0.1:4567");
    ASSERT_EQ(back.control_addresses.size(), 1u);
    EXPECT_EQ(back.control_addresses.front().to_string(), info.control_addresses.front().to_string());
    info.control_addresses = {info.control_addresses.front().with_port(0)};
    EXPECT_EQ(decode_handle(encode_handle(info)).status().code(), Code::kProtocol) << "port 0";
  }
}

// A flip of any bit must be detected.
template <size_t N, class Decode>
void expect_every_flip_refused(const std::array<std::byte, N>& good, Decode decode) {
  ASSERT_TRUE(decode(good).is_ok());
  for (size_t i = 0; i < N; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = good;
      bad[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_EQ(decode(bad).status().code(), Code::kProtocol) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(SoftWire, AnyFlippedBitIsRefused) {
  expect_every_flip_refused(encode_handle(handle_info("127.0.0.1")).bytes,
                            [](const auto& bytes) { return decode_handle(Handle{bytes}); });
  std::array<std::byte, kHelloBytes> hello;
  encode_hello({.connection = 5, .socket_index = 2, .data_sockets = 4, .proof = {std::byte{3}}}, hello);
  expect_every_flip_refused(hello, [](const auto& bytes) { return decode_hello(bytes); });
  std::array<std::byte, kHelloAnswerBytes> answer;
  encode_hello_answer({.connection = 5, .accepted = true}, answer);
  expect_every_flip_refused(answer, [](const auto& bytes) { return decode_hello_answer(bytes); });
  std::array<std::byte, kChunkHeaderBytes> chunk;
  encode_chunk_header({.sequence = 9, .total = 10000, .offset = 8192, .bytes = 1808, .tag = 42, .cut = 8192}, chunk);
  expect_every_flip_refused(chunk, [](const auto& bytes) { return decode_chunk_header(bytes, 8192); });
}

TEST(SoftWire, RecordsAreNotTakenForEachOther) {
  std::array<std::byte, kHelloBytes> hello;
  encode_hello({}, hello);
  std::array<std::byte, kChunkHeaderBytes> as_chunk;
  std::memcpy(as_chunk.data(), hello.data(), as_chunk.size());
  EXPECT_EQ(decode_chunk_header(as_chunk, 4096).status().code(), Code::kProtocol);
}

TEST(SoftWire, ChunkGeometryIsChecked) {
  const auto decodes = [](ChunkHeader header, uint32_t cut) {
    std::array<std::byte, kChunkHeaderBytes> bytes;
    header.cut = cut;
    encode_chunk_header(header, bytes);
    return decode_chunk_header(bytes, 3 * kPageBytes).is_ok();
  };
  EXPECT_TRUE(decodes({.total = 0, .offset = 0, .bytes = 0}, 4096));
  EXPECT_TRUE(decodes({.total = 4096, .offset = 0, .bytes = 4096}, 4096));
  EXPECT_TRUE(decodes({.total = 4097, .offset = 4096, .bytes = 1}, 4096));
  EXPECT_FALSE(decodes({.total = 0, .offset = 0, .bytes = 1}, 4096)) << "bytes of an empty message";
  EXPECT_FALSE(decodes({.total = 0, .offset = 4096, .bytes = 0}, 4096)) << "beyond an empty message";
  EXPECT_FALSE(decodes({.total = 4096, .offset = 4096, .bytes = 0}, 4096)) << "beyond the end";
  EXPECT_FALSE(decodes({.total = 8192, .offset = 1, .bytes = 4096}, 4096)) << "not at a chunk boundary";
  EXPECT_FALSE(decodes({.total = 8192, .offset = 0, .bytes = 4095}, 4096)) << "shorter than its chunk";
  EXPECT_FALSE(decodes({.total = 5000, .offset = 4096, .bytes = 4096}, 4096)) << "longer than its message";
  EXPECT_FALSE(decodes({.total = 0x80000000u, .offset = 0, .bytes = 4096}, 4096)) << "more than the ABI's int";
  EXPECT_FALSE(decodes({.total = 0xffffffffu, .offset = 0xfffff000u, .bytes = 4095}, 4096)) << "sums that would wrap";
}

TEST(SoftWire, TheCutIsBoundedByWhatWasAgreed) {
  const auto decodes = [](uint32_t cut, uint32_t most_bytes, uint32_t total = 100) {
    std::array<std::byte, kChunkHeaderBytes> bytes;
    encode_chunk_header({.total = total, .offset = 0, .bytes = std::min(cut, total), .cut = cut}, bytes);
    const auto header = decode_chunk_header(bytes, most_bytes);
    return header.is_ok() && header->cut == cut;
  };
  EXPECT_TRUE(decodes(4096, 4096));
  EXPECT_TRUE(decodes(4096, kMaxChunkBytes));
  EXPECT_TRUE(decodes(kMaxChunkBytes, kMaxChunkBytes));
  EXPECT_FALSE(decodes(0, 8192));
  EXPECT_FALSE(decodes(1, 8192)) << "chunks begin at page boundaries";
  EXPECT_FALSE(decodes(6000, 8192)) << "chunks begin at page boundaries";
  EXPECT_FALSE(decodes(12288, 8192)) << "more than agreed";
  EXPECT_FALSE(decodes(0xfffff000, kMaxChunkBytes));
  EXPECT_FALSE(decodes(0, 8192, 0)) << "of an empty message as well";
  EXPECT_FALSE(decodes(12288, 8192, 0));
}

TEST(SoftWire, ChunksAreCounted) {
  EXPECT_EQ(count_chunks(0, 4096), 1u) << "an empty message has one";
  EXPECT_EQ(count_chunks(1, 4096), 1u);
  EXPECT_EQ(count_chunks(8192, 4096), 2u);
  EXPECT_EQ(count_chunks(8193, 4096), 3u);
  EXPECT_EQ(count_chunks(INT32_MAX, 4096), 1u << 19) << "no message has more";
}

constexpr uint32_t kKiB = 1024, kMiB = 1024 * kKiB;

TEST(SoftWire, WithLittleUnderWayEverySocketGetsAShareWorthItsHeader) {
  const Chunking wide{.most_bytes = 512 * kKiB, .sockets = 8}, narrow{.most_bytes = 8 * kKiB, .sockets = 8};
  const auto alone = [](const Chunking& chunking, uint32_t total) { return chunking.cut_for(total, total); };
  EXPECT_EQ(alone(wide, 0), 64 * kKiB);
  EXPECT_EQ(alone(wide, 1), 64 * kKiB);
  EXPECT_EQ(alone(wide, 512 * kKiB), 64 * kKiB);
  EXPECT_EQ(alone(wide, kMiB), 128 * kKiB);
  EXPECT_EQ(alone(wide, 3 * kMiB), 384 * kKiB) << "a share each";
  EXPECT_EQ(alone(wide, 3 * kMiB + 1), 384 * kKiB + kPageBytes);
  EXPECT_EQ(alone(wide, 64 * kMiB), 512 * kKiB);
  EXPECT_EQ(alone(narrow, 1), 8 * kKiB) << "the least is not more than the most";
}

TEST(SoftWire, WithMuchUnderWayChunksAreLarge) {
  const Chunking eight{.most_bytes = 512 * kKiB, .sockets = 8}, two{.most_bytes = 512 * kKiB, .sockets = 2};
  EXPECT_EQ(eight.cut_for(512 * kKiB, 6 * kMiB), 384 * kKiB) << "twelve messages of 512 KiB on eight sockets";
  EXPECT_EQ(two.cut_for(512 * kKiB, 6 * kMiB), 512 * kKiB) << "the same on two";
  EXPECT_EQ(eight.cut_for(kMiB, 12 * kMiB), 512 * kKiB) << "twelve of 1 MiB on eight";
  EXPECT_EQ(eight.cut_for(1, 8 * kMiB - 1), 508 * kKiB) << "two for each socket";
  EXPECT_EQ(eight.cut_for(1, 8 * kMiB), 512 * kKiB);
  EXPECT_EQ(eight.cut_for(1, UINT64_MAX), 512 * kKiB);
  const Chunking largest{.most_bytes = kMaxChunkBytes, .sockets = kMaxDataSockets};
  EXPECT_EQ(largest.cut_for(INT32_MAX, 0), 128 * kMiB) << "sums that would wrap";
}

TEST(SoftWire, EveryCutIsOneThatAReceiverTakes) {
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) {
    const Chunking any{.most_bytes = kPageBytes << random() % 19,
                       .sockets = static_cast<uint32_t>(1 + random() % kMaxDataSockets)};
    const uint32_t total = (random() & 0x7fffffff) >> random() % 31;
    const uint64_t under_way = total + (uint64_t{random()} << random() % 4 >> random() % 32);
    const uint32_t cut = any.cut_for(total, under_way), last = (count_chunks(total, cut) - 1) * cut;
    ASSERT_TRUE(last < total || total == 0) << total;
    std::array<std::byte, kChunkHeaderBytes> bytes;
    encode_chunk_header({.total = total, .offset = last, .bytes = total - last, .cut = cut}, bytes);
    ASSERT_OK(decode_chunk_header(bytes, any.most_bytes));
  }
}

TEST(SoftWire, HandleFieldsAreBounded) {
  const auto decodes = [](auto change) {
    HandleInfo info = handle_info("127.0.0.1");
    change(info);
    return decode_handle(encode_handle(info)).is_ok();
  };
  EXPECT_TRUE(decodes([](HandleInfo&) {}));
  EXPECT_FALSE(decodes([](HandleInfo& info) { info.data_sockets = 0; }));
  EXPECT_FALSE(decodes([](HandleInfo& info) { info.data_sockets = kMaxDataSockets + 1; }));
  EXPECT_FALSE(decodes([](HandleInfo& info) { info.chunk_bytes = 0; }));
  EXPECT_FALSE(decodes([](HandleInfo& info) { info.chunk_bytes = 4097; }));
  EXPECT_FALSE(decodes([](HandleInfo& info) { info.chunk_bytes = kMaxChunkBytes + kPageBytes; }));
  EXPECT_FALSE(decodes([](HandleInfo& info) { info.addresses = {info.addresses.front().with_port(0)}; }));
  EXPECT_FALSE(decodes([](HandleInfo& info) { info.addresses.clear(); }));
  EXPECT_FALSE(decodes([](HandleInfo& info) { info.addresses.push_back(info.addresses.front()); }));
  EXPECT_TRUE(decodes([](HandleInfo& info) {
    info.addresses = *resolve("10.0.0.1,fd00::1", 4567, Deadline::after(std::chrono::seconds(1)), nullptr);
  }));
  EXPECT_FALSE(decodes([](HandleInfo& info) {
    info.control_addresses = *resolve("10.0.0.1,10.0.0.2", 1, Deadline::after(std::chrono::seconds(1)), nullptr);
  }));
}

TEST(SoftWire, HelloIndexIsBounded) {
  std::array<std::byte, kHelloBytes> bytes;
  encode_hello({.socket_index = 4, .data_sockets = 4}, bytes);
  EXPECT_TRUE(decode_hello(bytes).is_ok()) << "the control socket";
  encode_hello({.socket_index = 5, .data_sockets = 4}, bytes);
  EXPECT_FALSE(decode_hello(bytes).is_ok());
  encode_hello({.data_sockets = 4, .device_sockets = 5}, bytes);
  EXPECT_FALSE(decode_hello(bytes).is_ok());
  encode_hello({.socket_index = 0, .data_sockets = 2 * kMaxDataSockets + 1}, bytes);
  EXPECT_FALSE(decode_hello(bytes).is_ok());
}

TEST(SoftWire, AHandleMayTellPortsForHostMemory) {
  HandleInfo info = handle_info("127.0.0.1");
  info.addresses.push_back(handle_info("::1").addresses.front());
  info.headers_apart = true;
  const auto hosts_of = [&] {
    std::string hosts;
    for (const SocketAddress& address : must(decode_handle(encode_handle(info))).host_addresses)
      hosts += address.to_string() + " ";
    return hosts;
  };
  EXPECT_EQ(hosts_of(), "");
  info.host_addresses = {info.addresses[1].with_port(77)};
  EXPECT_EQ(hosts_of(), "[::1]:77 ");
  info.host_addresses.push_back(info.addresses[0].with_port(78));
  EXPECT_EQ(hosts_of(), "127.0.0.1:78 [::1]:77 ");
  info.headers_apart = false;
  EXPECT_EQ(decode_handle(encode_handle(info)).status().code(), Code::kProtocol);
}

// The first word of MT19937-64 with its reference seed, 5489, is in its authors' and the C++ standard's texts.
TEST(SoftWire, NoTwoProofPagesAreAlike) {
  const auto page = proof_page({.connection = 5488, .socket_index = 1});
  uint64_t word;
  std::memcpy(&word, page.data(), sizeof word);
  EXPECT_EQ(word, 14514284786278117030u);
  EXPECT_EQ(page, proof_page({.connection = 5489, .socket_index = 0}));
  EXPECT_NE(page, proof_page({.connection = 5488, .socket_index = 0}));
}

// The layouts at the head of net/soft/wire.h.
TEST(SoftWire, RecordsLookOnTheWireAsDocumented) {
  const auto expect = [](std::span<const std::byte> record, size_t off, const std::string& bytes) {
    ASSERT_LE(off + bytes.size(), record.size());
    EXPECT_EQ(std::memcmp(record.data() + off, bytes.data(), bytes.size()), 0) << "at " << off;
  };
  const auto zeros = [](size_t count) { return std::string(count, '\0'); };
  const std::string version("\x08\0", 2), cookie("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16);

  const Handle handle = encode_handle(handle_info("127.0.0.1"));
  expect(handle.bytes, 0, "TXSH" + version + zeros(2));
  expect(handle.bytes, 8, std::string("\4\0\0\0\0\0\x08\0", 8) + cookie + zeros(8));
  HandleInfo with_secret = handle_info("127.0.0.1");
  with_secret.proves = true;
  expect(encode_handle(with_secret).bytes, 0, "TXSH" + version + std::string("\1\0", 2));
  EXPECT_TRUE(must(decode_handle(encode_handle(with_secret))).proves);
  EXPECT_FALSE(must(decode_handle(encode_handle(with_secret))).encrypts);
  with_secret.encrypts = true;
  expect(encode_handle(with_secret).bytes, 0, "TXSH" + version + std::string("\3\0", 2));
  EXPECT_TRUE(must(decode_handle(encode_handle(with_secret))).encrypts);
  HandleInfo apart = handle_info("127.0.0.1");
  apart.headers_apart = true;
  expect(encode_handle(apart).bytes, 0, "TXSH" + version + std::string("\4\0", 2));
  EXPECT_TRUE(must(decode_handle(encode_handle(apart))).headers_apart);
  EXPECT_FALSE(must(decode_handle(handle)).headers_apart);
  expect(handle.bytes, 40, std::string("\4\0\xd7\x11\x7f\0\0\1", 8) + zeros(12 + 64));

  std::array<std::byte, kHelloBytes> hello;
  Mac proof;
  std::iota(reinterpret_cast<char*>(proof.begin()), reinterpret_cast<char*>(proof.end()), 'a');
  encode_hello({.connection = 0x0807060504030201, .socket_index = 3, .data_sockets = 4, .proof = proof}, hello);
  expect(hello, 0, "TXS1" + version + zeros(2) + std::string("\1\2\3\4\5\6\7\x08\3\0\0\0\4\0\0\0", 16));
  expect(hello, 24, zeros(20) + "abcdefghijklmnop");
  encode_hello({.data_sockets = 4, .device_sockets = 2}, hello);
  expect(hello, 20, std::string("\4\0\0\0\2\0\0\0", 8));
  EXPECT_EQ(must(decode_hello(hello)).device_sockets, 2u);
  EXPECT_FALSE(must(decode_hello(hello)).encrypts);
  encode_hello({.data_sockets = 4, .encrypts = true}, hello);
  expect(hello, 0, "TXS1" + version + std::string("\1\0", 2));
  EXPECT_TRUE(must(decode_hello(hello)).encrypts);

  EXPECT_FALSE(must(decode_hello(hello)).headers_apart);
  encode_hello({.data_sockets = 4, .headers_apart = true}, hello);
  expect(hello, 0, "TXS1" + version + std::string("\2\0", 2));
  EXPECT_TRUE(must(decode_hello(hello)).headers_apart);

  std::array<std::byte, kHelloAnswerBytes> answer;
  encode_hello_answer({.connection = 0x0807060504030201, .accepted = true, .proof = proof}, answer);
  expect(answer, 0, "TXS2" + version + std::string("\1\0\1\2\3\4\5\6\7\x08", 10) + zeros(12) + "abcdefghijklmnop");

  std::array<std::byte, kChunkHeaderBytes> chunk;
  encode_chunk_header(
      {.sequence = 0x0807060504030201, .total = 0x14131211, .offset = 4096, .bytes = 0x34333231, .tag = -2, .cut = 0x44434241},
      chunk);
  expect(chunk, 0, "TXS3" + version + zeros(2));
  expect(chunk, 8,
         std::string("\1\2\3\4\5\6\7\x08\x11\x12\x13\x14\0\x10\0\0\x31\x32\x33\x34\xfe\xff\xff\xff", 24) + zeros(8) + "ABCD");

  const auto plain = chunk;
  encode_chunk_header({.total = 1, .bytes = 1, .cut = kPageBytes, .socket = 0x0201}, chunk);
  expect(chunk, 0, "TXS3" + version + "\1\2");
  EXPECT_EQ(must(decode_chunk_header(chunk, kPageBytes)).socket, 0x0201);
  chunk = plain;

  std::array<std::byte, kChoiceBytes> choice;
  encode_choice({.sequence = 0x0807060504030201, .device = true}, choice);
  expect(choice, 0, "TXS4" + version + std::string("\1\0\1\2\3\4\5\6\7\x08", 10) + zeros(4));
  EXPECT_EQ(must(decode_choice(choice)).sequence, 0x0807060504030201u);
  EXPECT_TRUE(must(decode_choice(choice)).device);

  for (const std::span<const std::byte> record :
       {std::span<const std::byte>(choice), std::span<const std::byte>(handle.bytes), std::span<const std::byte>(hello),
        std::span<const std::byte>(answer), std::span<const std::byte>(chunk)}) {
    uint32_t check = 0x811c9dc5;
    for (const std::byte byte : record.first(record.size() - 4)) check = (check ^ static_cast<uint32_t>(byte)) * 0x01000193;
    EXPECT_EQ(std::memcmp(record.last(4).data(), &check, 4), 0);
  }
}

}  // namespace
}  // namespace tcpx::soft
