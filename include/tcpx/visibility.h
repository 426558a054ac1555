// What libtcpx.so shows of a class: cmake/tcpx_exports.map names it, and this keeps the compiler from hiding it.
#pragma once

#define TCPX_CLASS_API __attribute__((visibility("default")))
#define TCPX_CLASS_INTERNAL __attribute__((visibility("hidden")))
