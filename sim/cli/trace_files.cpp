#include "sim/cli/trace_files.h"

#include <zlib.h>

#include <sstream>

#include "reports/chrome_trace.h"
#include "sim/core/error.h"

namespace longhaul {
namespace {

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

void add_traces(OutputFolder& output, const std::string& folder, const TraceBundle& traces, bool compressed) {
  std::vector<std::string> rows;
  for (const Traced& traced : traces.traced) {
    rows.push_back(traced.case_name.empty() ? traced.strategy : traced.case_name + "." + traced.strategy);
  }
  const std::vector<std::string> names = unique_file_names(rows);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::ostringstream text;
    write_chrome_trace(text, traces.traced[i]);
    const std::string file = folder + names[i] + ".trace.json";
    if (compressed) {
      output.add(file + ".gz", gzipped(text.str()));
    } else {
      output.add(file, text.str());
    }
  }
}

}  // namespace longhaul
