// How the hello and its answer show that they come from who knows the listener's cookie.
//
// Without a secret each carries the cookie. With one neither does: each carries a code of authentication, whose key is derived from the
// secret and the cookie. So a handle that others have seen is of no use to them, and what was said to one listener is of none at another.
// The hello's code is of all that it says, and the answer's of the hello and of all that the answer says; who speaks is part of both.
// So neither can be changed, moved to another socket or sent back. That a hello comes a second time is for the listener to see.
//
// With encryption, the key of a socket is derived from that key, and from all that both have said on this socket. The hello says
// that it is encrypted, so two ends that do not agree on this have no proof and no key in common.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "net/soft/wire.h"
#include "secure/proof.h"
#include "secure/record_cipher.h"

namespace tcpx::soft {

/// The proofs of one listener, at either end. Any thread.
class HelloProofs {
 public:
  /// @param secret null: there is none; not needed later. @return kExhausted, as of all calls below
  static Result<HelloProofs> create(const Cookie& cookie, const Prover* secret);

  bool has_secret() const { return key_.has_value(); }
  /// Writes the record with its proof.
  Status write(Hello hello, std::span<std::byte, kHelloBytes> out) const;
  /// @param hello as it was received
  Status write(HelloAnswer answer, std::span<const std::byte, kHelloBytes> hello,
               std::span<std::byte, kHelloAnswerBytes> out) const;
  /// @return as decode_hello, and kProtocol: not from who knows cookie and secret, or not as it was said
  Result<Hello> read(std::span<const std::byte, kHelloBytes> in) const;
  /// @param hello as it was sent
  Result<HelloAnswer> read(std::span<const std::byte, kHelloAnswerBytes> in, std::span<const std::byte, kHelloBytes> hello) const;
  /// For what the connector sends on the socket where these two were said. Call if there is a secret. @return errors of RecordCipher
  Result<std::unique_ptr<RecordCipher>> cipher(RecordCipher::Work work, std::span<const std::byte, kHelloBytes> hello,
                                               std::span<const std::byte, kHelloAnswerBytes> answer) const;

 private:
  HelloProofs(const Mac& cookie, std::optional<Prover> key) : cookie_(cookie), key_(std::move(key)) {}
  Result<Mac> of_hello(std::span<const std::byte, kHelloBytes> hello) const;
  Result<Mac> of_answer(std::span<const std::byte, kHelloAnswerBytes> answer,
                        std::span<const std::byte, kHelloBytes> hello) const;

  Mac cookie_;
  std::optional<Prover> key_;  // nullopt: the cookie is the proof
};

}  // namespace tcpx::soft
