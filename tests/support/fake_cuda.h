// Questions of a case to the CUDA runtime of support/fake_cuda.cc.
#pragma once

namespace tcpx::testing {

/// Contexts that the runtime has made on device 0, on threads that had none, since the process began.
int contexts_made_unasked();

}  // namespace tcpx::testing
