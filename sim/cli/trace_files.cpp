#include "sim/cli/trace_files.h"

#include <zlib.h>

#include <sstream>

#include "reports/chrome_trace.h"
#include "sim/cli/command.h"

namespace longhaul {
namespace {

std::string file_name(const Traced& traced) {
  std::string name = traced.case_name.empty() ? traced.strategy : traced.case_name + "." + traced.strategy;
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
    if (!plain) c = '_';
  }
  return name;
}

// A gzip stream without a time stamp: equal traces make equal files.
std::string gzipped(const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;
  constexpr int kMemoryLevel = 8;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw LimitError("traces cannot be compressed: zlib does not start");
  }
  std::string out(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END || text.size() > UINT32_MAX) {
    throw LimitError("a trace is too large to be compressed; leave out --trace all");
  }
  return out;
}

}  // namespace

void write_traces(const std::string& folder, const TraceBundle& traces, bool compressed) {
  for (const Traced& traced : traces.traced) {
    std::ostringstream text;
    write_chrome_trace(text, traced);
    const std::string file = folder + "/" + file_name(traced) + ".trace.json";
    if (compressed) {
      write_file(file + ".gz", gzipped(text.str()));
    } else {
      write_file(file, text.str());
    }
  }
}

}  // namespace longhaul
