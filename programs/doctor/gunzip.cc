#include "programs/doctor/gunzip.h"

#include <limits>

#define ZLIB_CONST  // input is not written to
#include <zlib.h>

namespace tcpx::doctor {

std::optional<std::string> gunzip(std::string_view compressed, size_t most_bytes) {
  constexpr size_t kMost = std::numeric_limits<uInt>::max();
  if (compressed.size() > kMost || most_bytes > kMost) return std::nullopt;
  constexpr int kGzipOnly = 16;  // added to the window's bits: zlib.h, inflateInit2
  z_stream stream = {};
  if (inflateInit2(&stream, MAX_WBITS + kGzipOnly) != Z_OK) return std::nullopt;
  std::string text(most_bytes, '\0');
  stream.next_in = reinterpret_cast<const Bytef*>(compressed.data());
  stream.avail_in = static_cast<uInt>(compressed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  if (result != Z_STREAM_END) return std::nullopt;
  return text;
}

}  // namespace tcpx::doctor
