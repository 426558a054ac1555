#include "net/soft/hello_proofs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace tcpx::soft {
namespace {

// One for each key and each speaker; a code of one is none of another.
constexpr const char *kListener = "tcpx-soft listener", *kConnectorSays = "tcpx-soft hello", *kListenerSays = "tcpx-soft answer",
                     *kConnectorSends = "tcpx-soft data of the connector";

}  // namespace

Result<HelloProofs> HelloProofs::create(const Cookie& cookie, const Prover* secret) {
  const Mac in_clear = std::bit_cast<Mac>(cookie);
  if (secret == nullptr) return HelloProofs(in_clear, std::nullopt);
  TCPX_ASSIGN_OR_RETURN(Prover key, secret->derive(kListener, in_clear));
  return HelloProofs(in_clear, std::move(key));
}

Result<Mac> HelloProofs::of_hello(std::span<const std::byte, kHelloBytes> hello) const {
  if (!key_) return cookie_;
  return key_->mac(kConnectorSays, hello.first<kHelloProvedBytes>());
}

Result<Mac> HelloProofs::of_answer(std::span<const std::byte, kHelloAnswerBytes> answer,
                                   std::span<const std::byte, kHelloBytes> hello) const {
  if (!key_) return cookie_;
  std::array<std::byte, kHelloBytes + kHelloAnswerProvedBytes> both;
  std::copy_n(answer.begin(), kHelloAnswerProvedBytes, std::copy(hello.begin(), hello.end(), both.begin()));
  return key_->mac(kListenerSays, both);
}

Status HelloProofs::write(Hello hello, std::span<std::byte, kHelloBytes> out) const {
  encode_hello(hello, out);
  TCPX_ASSIGN_OR_RETURN(hello.proof, of_hello(out));
  encode_hello(hello, out);
  return Status::ok();
}

Status HelloProofs::write(HelloAnswer answer, std::span<const std::byte, kHelloBytes> hello,
                          std::span<std::byte, kHelloAnswerBytes> out) const {
  encode_hello_answer(answer, out);
  TCPX_ASSIGN_OR_RETURN(answer.proof, of_answer(out, hello));
  encode_hello_answer(answer, out);
  return Status::ok();
}

Result<Hello> HelloProofs::read(std::span<const std::byte, kHelloBytes> in) const {
  TCPX_ASSIGN_OR_RETURN(const Hello hello, decode_hello(in));
  TCPX_ASSIGN_OR_RETURN(const Mac proof, of_hello(in));
  if (same_mac(hello.proof, proof)) return hello;
  return Status(Code::kProtocol, "hello",
                key_ ? "wrong proof: of another secret or of none, meant for another listener, or changed on its way"
                     : "wrong cookie: meant for another listener");
}

Result<HelloAnswer> HelloProofs::read(std::span<const std::byte, kHelloAnswerBytes> in,
                                      std::span<const std::byte, kHelloBytes> hello) const {
  TCPX_ASSIGN_OR_RETURN(const HelloAnswer answer, decode_hello_answer(in));
  TCPX_ASSIGN_OR_RETURN(const Mac proof, of_answer(in, hello));
  if (same_mac(answer.proof, proof)) return answer;
  return Status(Code::kProtocol, "answer to hello",
                key_ ? "wrong proof: of another secret or of none, to another hello, or changed on its way"
                     : "wrong cookie: of another listener");
}

Result<std::unique_ptr<RecordCipher>> HelloProofs::cipher(RecordCipher::Work work, std::span<const std::byte, kHelloBytes> hello,
                                                          std::span<const std::byte, kHelloAnswerBytes> answer) const {
  std::array<std::byte, kHelloBytes + kHelloAnswerBytes> both;
  std::copy(answer.begin(), answer.end(), std::copy(hello.begin(), hello.end(), both.begin()));
  TCPX_ASSIGN_OR_RETURN(Secret secret, key_.value().derive_secret(kConnectorSends, both));
  return RecordCipher::create(std::move(secret), work);
}

}  // namespace tcpx::soft
