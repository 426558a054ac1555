#include "secure/record_cipher.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/guarded_copy.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "secure/derive_key.h"
#include "secure/openssl.h"

namespace tcpx {
namespace {

constexpr size_t kKeyBytes = 16, kIvBytes = 12, kTagBytes = 16;
constexpr std::array<std::byte, 3> kBegins{std::byte{0x17}, std::byte{3}, std::byte{3}};
constexpr const char *kSeal = "seal record", *kOpen = "open record";

Status no_cipher() {
  return Status(Code::kExhausted, "encrypt", "OpenSSL makes no AES-GCM");
}

unsigned char* chars(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* chars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

void RecordCipher::Free::operator()(evp_cipher_ctx_st* context) const {
  library->EVP_CIPHER_CTX_free(context);  // wipes its key
}

Result<std::unique_ptr<RecordCipher>> RecordCipher::create(Secret secret, Work work, uint64_t records_per_key) {
  TCPX_ASSIGN_OR_RETURN(const OpenSsl* const library, OpenSsl::of_process());
  TCPX_ASSIGN_OR_RETURN(Secret kept, Secret::zeros(kHmacBytes + kIvBytes));
  std::copy_n(secret.bytes().begin(), kHmacBytes, kept.room().begin());
  EVP_CIPHER_CTX* const context = library->EVP_CIPHER_CTX_new();
  if (context == nullptr) return no_cipher();
  std::unique_ptr<RecordCipher> made(new RecordCipher(*library, context, std::move(kept), work, records_per_key));
  TCPX_RETURN_IF_ERROR(made->take_key());
  return made;
}

Status RecordCipher::take_key() {
  const auto secret = secret_.bytes().first(kHmacBytes);
  std::array<std::byte, kKeyBytes> key;
  const bool done = expand_label(library_, secret, "key", key) &&
                    expand_label(library_, secret, "iv", secret_.room().subspan(kHmacBytes)) &&
                    library_.EVP_CipherInit_ex(context_.get(), library_.EVP_aes_128_gcm(), nullptr, chars(key.data()), nullptr,
                                               work_ == Work::kSeals ? 1 : 0) == 1;
  ::explicit_bzero(key.data(), key.size());
  return done ? Status::ok() : no_cipher();
}

Status RecordCipher::begin(std::span<const std::byte, kHeadBytes> head) {
  if (records_ == records_per_key_) {
    const auto secret = secret_.room().first(kHmacBytes);
    if (!expand_label(library_, secret, "traffic upd", secret)) return no_cipher();
    TCPX_RETURN_IF_ERROR(take_key());
    records_ = 0;
  }
  std::array<std::byte, kIvBytes> nonce;
  std::copy_n(secret_.bytes().begin() + kHmacBytes, kIvBytes, nonce.begin());
  for (size_t i = 0; i < sizeof records_; ++i) nonce[kIvBytes - 1 - i] ^= static_cast<std::byte>(records_ >> 8 * i);
  ++records_;
  if (library_.EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, chars(nonce.data()), -1) == 1 &&
      update(nullptr, head.data(), head.size()))
    return Status::ok();
  return no_cipher();
}

// @param out null: the bytes are authenticated alone
bool RecordCipher::update(std::byte* out, const std::byte* in, size_t bytes) {
  int made = 0;
  return library_.EVP_CipherUpdate(context_.get(), chars(out), &made, chars(in), static_cast<int>(bytes)) == 1 &&
         made == static_cast<int>(bytes);
}

Status RecordCipher::seal(std::span<const iovec> content, std::byte* record, Type type) {
  size_t bytes = 0;
  for (const iovec& each : content) bytes += each.iov_len;
  const size_t follow = bytes + kOverheadBytes - kHeadBytes;
  std::copy(kBegins.begin(), kBegins.end(), record);
  record[3] = static_cast<std::byte>(follow >> 8);
  record[4] = static_cast<std::byte>(follow);
  TCPX_RETURN_IF_ERROR(begin(std::span<const std::byte, kHeadBytes>(record, kHeadBytes)));
  struct Step {
    RecordCipher& cipher;
    std::byte* out;
    bool done;
  } step{*this, record + kHeadBytes, true};
  for (const iovec& each : content) {
    const int error = guarded_read(
        {static_cast<const std::byte*>(each.iov_base), each.iov_len},
        [](void* context, std::span<const std::byte> memory) {
          Step& now = *static_cast<Step*>(context);
          now.done = now.cipher.update(now.out, memory.data(), memory.size());
        },
        &step);
    if (error != 0) return system_error(kSeal, error);
    if (!step.done) return no_cipher();
    step.out += each.iov_len;
  }
  int none = 0;
  const auto kind = static_cast<std::byte>(type);
  if (!update(step.out, &kind, 1) || library_.EVP_CipherFinal_ex(context_.get(), chars(step.out), &none) != 1 ||
      library_.EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, step.out + 1) != 1)
    return no_cipher();
  return Status::ok();
}

Result<size_t> RecordCipher::size_of(std::span<const std::byte, kHeadBytes> head) {
  const size_t follow = std::to_integer<size_t>(head[3]) << 8 | std::to_integer<size_t>(head[4]);
  const bool ours = std::equal(kBegins.begin(), kBegins.end(), head.begin());
  if (ours && follow + kHeadBytes > kOverheadBytes && follow + kHeadBytes <= kMostBytes) return follow + kHeadBytes;
  return Status(Code::kProtocol, kOpen, "what came is no encrypted record");
}

Result<RecordCipher::Opened> RecordCipher::open(std::span<std::byte> record) {
  TCPX_RETURN_IF_ERROR(begin(record.first<kHeadBytes>()));
  const auto inner = record.subspan(kHeadBytes, record.size() - kHeadBytes - kTagBytes);
  int none = 0;
  if (!update(inner.data(), inner.data(), inner.size()) ||
      library_.EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, record.last(kTagBytes).data()) != 1)
    return no_cipher();
  const auto type = static_cast<Type>(inner.back());
  if (library_.EVP_CipherFinal_ex(context_.get(), chars(inner.data()), &none) != 1 ||
      (type != Type::kData && type != Type::kAlert)) {
    ::explicit_bzero(inner.data(), inner.size());
    return Status(Code::kProtocol, kOpen,
                  "an encrypted record is not the one that the peer sent here: changed, left out, repeated or moved on its way");
  }
  return Opened{type, inner.first(inner.size() - 1)};
}

}  // namespace tcpx
