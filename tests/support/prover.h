// Authentication by a secret that is one letter over and over.
#pragma once

#include <algorithm>

#include "secure/proof.h"
#include "secure/secret.h"
#include "tests/support/ok.h"

namespace tcpx::testing {

inline Secret secret_of(char letter) {
  Secret secret = must(Secret::zeros(Secret::kFewestBytes));
  std::fill(secret.room().begin(), secret.room().end(), static_cast<std::byte>(letter));
  return secret;
}

inline Prover prover_of(char letter) {
  return must(Prover::create(secret_of(letter)));
}

}  // namespace tcpx::testing
