// Encrypted records against vectors made elsewhere, and against who changes, cuts, swaps, repeats and reflects them.
#include "secure/record_cipher.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/hex_text.h"
#include "tests/support/ok.h"

namespace tcpx::testing {
namespace {

using Record = std::vector<std::byte>;
using Work = RecordCipher::Work;

// client_application_traffic_secret_0 of RFC 8448, section 3.
constexpr const char* kSecretOfRfc8448 = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";

std::unique_ptr<RecordCipher> cipher_of(Work work, uint64_t records_per_key = RecordCipher::kRecordsPerKey,
                                        const char* secret = kSecretOfRfc8448) {
  Secret made = must(Secret::zeros(32));
  const auto bytes = from_hex_text(secret);
  std::transform(bytes.begin(), bytes.end(), made.room().begin(), [](uint8_t each) { return std::byte{each}; });
  return must(RecordCipher::create(std::move(made), work, records_per_key));
}

Record seal(RecordCipher& cipher, std::string_view content) {
  Record record(content.size() + RecordCipher::kOverheadBytes);
  const iovec piece{const_cast<char*>(content.data()), content.size()};
  EXPECT_OK(cipher.seal({&piece, 1}, record.data()));
  return record;
}

std::string hex_of(const Record& record) {
  return to_hex_text(record.data(), record.size());
}

/// Content that the receiving end takes from the wire: its length as the record says, then the content. "": refused
std::string open(RecordCipher& cipher, Record record) {
  const auto size = RecordCipher::size_of(std::span(record).first<RecordCipher::kHeadBytes>());
  if (!size.is_ok()) return "";
  record.resize(*size);  // what follows on the wire
  const auto opened = cipher.open(record);
  if (!opened.is_ok()) {
    EXPECT_EQ(opened.status().code(), Code::kProtocol);
    EXPECT_EQ(std::count(record.begin() + 5, record.end() - 16, std::byte{0}), static_cast<std::ptrdiff_t>(*size - 21))
        << "nothing is left of what is not genuine";
    return "";
  }
  EXPECT_EQ(opened->type, RecordCipher::Type::kData);
  return {reinterpret_cast<const char*>(opened->content.data()), opened->content.size()};
}

// The first record is that of RFC 8448, section 3 (client application data). The others are by Python's `cryptography`: AESGCM with key,
// IV and next secret by HKDF-Expand-Label, written from RFC 8446, 7.1 to 7.3.
TEST(RecordCipher, RecordsAreThoseOfTls) {
  const auto sender = cipher_of(Work::kSeals);
  std::string content(50, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i);
  EXPECT_EQ(hex_of(seal(*sender, content)),
            "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a29770"
            "14bd1e3deae63aeebb21694915e4");
  EXPECT_EQ(hex_of(seal(*sender, "second")), "1703030017bbe251e631ee446561c6499630caececa6b8e7a7825082");
  const auto rekeyed = cipher_of(Work::kSeals, 1);
  (void)seal(*rekeyed, "of the first key");
  EXPECT_EQ(hex_of(seal(*rekeyed, "of the next key")),
            "170303002067bd91f2abe1e439fd14e61ebae50b051955dc2f5f9b06dbe1818cfa04dfe4a5");
}

TEST(RecordCipher, ContentOfAnyLengthInAnyPiecesArrives) {
  const auto sender = cipher_of(Work::kSeals), receiver = cipher_of(Work::kOpens);
  std::string content(RecordCipher::kContentBytes, ' ');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 >> 3);
  for (const size_t bytes : {1, 2, 15, 16, 17, 48, 64, 4095, 16383, 16384}) {
    for (const size_t first : {size_t{0}, size_t{1}, bytes / 3, bytes - 1}) {
      const iovec pieces[] = {{content.data(), first}, {content.data() + first, bytes - first}};
      Record record(bytes + RecordCipher::kOverheadBytes);
      ASSERT_OK(sender->seal(pieces, record.data()));
      ASSERT_EQ(open(*receiver, record), content.substr(0, bytes)) << bytes << " " << first;
    }
  }
}

TEST(RecordCipher, AFlippedBitAnywhereInARecordIsRefused) {
  const Record good = seal(*cipher_of(Work::kSeals), "sixteen and more bytes");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Record bad = good;
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    bad.resize(RecordCipher::kMostBytes);  // a length that has grown finds bytes
    EXPECT_EQ(open(*cipher_of(Work::kOpens), bad), "") << bit;
  }
  EXPECT_EQ(open(*cipher_of(Work::kOpens), good), "sixteen and more bytes");
}

TEST(RecordCipher, AShortenedRecordIsRefusedWhateverLengthItNames) {
  const Record good = seal(*cipher_of(Work::kSeals), "content");
  for (size_t size = RecordCipher::kHeadBytes; size < good.size(); ++size) {
    Record bad(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    bad[4] = static_cast<std::byte>(size - RecordCipher::kHeadBytes);
    EXPECT_EQ(open(*cipher_of(Work::kOpens), bad), "") << size;
  }
}

TEST(RecordCipher, SwappedRepeatedLeftOutAndMovedRecordsAreRefused) {
  const auto sender = cipher_of(Work::kSeals);
  const Record first = seal(*sender, "first"), second = seal(*sender, "second");
  EXPECT_EQ(open(*cipher_of(Work::kOpens), second), "") << "swapped, or the first left out";
  const auto receiver = cipher_of(Work::kOpens);
  EXPECT_EQ(open(*receiver, first), "first");
  EXPECT_EQ(open(*receiver, first), "") << "repeated";
  const char* const of_other_socket = "0000000000000000000000000000000000000000000000000000000000000000";
  EXPECT_EQ(open(*cipher_of(Work::kOpens, RecordCipher::kRecordsPerKey, of_other_socket), first), "");
}

TEST(RecordCipher, KeysChangeAfterTheSameNumberOfRecordsAtBothEnds) {
  for (const uint64_t each : {1, 2, 3}) {
    const auto sender = cipher_of(Work::kSeals, each), receiver = cipher_of(Work::kOpens, each);
    std::vector<Record> sent;
    for (int i = 0; i < 10; ++i) {
      sent.push_back(seal(*sender, "the same again"));
      EXPECT_EQ(std::count(sent.begin(), sent.end(), sent.back()), 1) << i;
      EXPECT_EQ(open(*receiver, sent.back()), "the same again") << i;
    }
    EXPECT_EQ(open(*receiver, sent[10 % each]), "") << "of an earlier key";
  }
  const auto sender = cipher_of(Work::kSeals, 2), receiver = cipher_of(Work::kOpens, 3);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(open(*receiver, seal(*sender, "x")), "x");
  EXPECT_EQ(open(*receiver, seal(*sender, "x")), "") << "the ends disagree on the number";
}

TEST(RecordCipher, OtherLengthsAreNoneOfOurs) {
  for (const size_t follow : {0, 1, 16, 17, 16384 + 18, 65535}) {
    const std::byte head[] = {std::byte{0x17}, std::byte{3}, std::byte{3}, static_cast<std::byte>(follow >> 8),
                              static_cast<std::byte>(follow)};
    EXPECT_EQ(RecordCipher::size_of(head).status().code(), Code::kProtocol) << follow;
  }
}

TEST(RecordCipher, MemoryThatHasGoneEndsTheRecordAlone) {
  void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::munmap(memory, 4096), 0);
  Record record(4096 + RecordCipher::kOverheadBytes);
  const iovec piece{memory, 4096};
  const Status status = cipher_of(Work::kSeals)->seal({&piece, 1}, record.data());
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_EQ(status.native(), EFAULT);
}

}  // namespace
}  // namespace tcpx::testing
