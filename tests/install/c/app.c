#include "tcpx_interface.h"
int main(void) {
  if (tcpx_load_plugin("embedded") != TCPX_OK) return 1;
  return tcpx_get_device_count() > 0 ? 0 : 1;
}
