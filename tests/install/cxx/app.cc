#include "tcpx/endpoint.h"
int main() {
  const auto endpoint = tcpx::Endpoint::create({.listen_address = "127.0.0.1"});
  return endpoint.is_ok() && tcpx::Endpoint::read_metadata((*endpoint)->get_metadata())->port != 0 ? 0 : 1;
}
