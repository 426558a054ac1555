#include "device/no_unpacker.h"

#include "device/ticket_ring.h"

namespace tcpx {
namespace {

class NoUnpacker final : public Unpacker {
 public:
  const char* name() const override { return "none"; }

  Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) override {
    TCPX_RETURN_IF_ERROR(check_batch(blocks.size()));
    return UnpackTicket{++last_ticket_};
  }

  Result<bool> query(UnpackTicket) override { return true; }

 private:
  uint64_t last_ticket_ = 0;
};

}  // namespace

std::unique_ptr<Unpacker> make_no_unpacker() {
  return std::make_unique<NoUnpacker>();
}

}  // namespace tcpx
