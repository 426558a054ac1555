// Visibility of the classes that libtcpx.so exports: cmake/tcpx_exports.map names them, and this keeps the compiler from hiding
// them.
#pragma once

#define TCPX_CLASS_API __attribute__((visibility("default")))
#define TCPX_CLASS_INTERNAL __attribute__((visibility("hidden")))
