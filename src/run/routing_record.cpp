#include "run/routing_record.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "control/routing_spool.hpp"
#include "trace/routing.hpp"

namespace resid::run {
namespace {

// One layer of one graph.
struct Layer {
  RoutingSpoolHead head;
  std::vector<std::int32_t> ids;
};

class Spool {
 public:
  explicit Spool(int fd) : fd_(fd) {}
  // Nothing at the end; a last record that was cut off is no record.
  std::optional<Layer> next() {
    Layer layer;
    if (!read_whole(&layer.head, sizeof layer.head)) return std::nullopt;
    if (layer.head.magic != RoutingSpoolHead::kMagic) return std::nullopt;
    layer.ids.resize(std::size_t{layer.head.used} * layer.head.tokens);
    if (!read_whole(layer.ids.data(), layer.ids.size() * sizeof layer.ids[0])) return std::nullopt;
    return layer;
  }

 private:
  bool read_whole(void* into, std::size_t bytes) {
    auto* at = static_cast<char*>(into);
    while (bytes != 0) {
      const ssize_t n = ::pread(fd_, at, bytes, at_);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      at_ += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }
  int fd_;
  off_t at_ = 0;
};

// The tokens that every layer of the graph has, the last ones of its batch.
std::uint32_t common_tokens(const std::vector<Layer>& graph) {
  std::uint32_t least = graph.front().head.tokens;
  for (const Layer& layer : graph)
    least = std::min(least, layer.head.tokens);
  return least;
}

class Writing {
 public:
  explicit Writing(std::string path) : path_(std::move(path)) {}

  Result<void> graph(const std::vector<Layer>& layers) {
    if (layers.empty()) return {};
    // A graph that lacks layers was broken off.
    if (layers_ == 0) layers_ = layers.size();
    if (layers.size() != layers_) return {};
    if (!writer_) {
      auto made = RoutingWriter::create(path_, layers[0].head.experts, layers[0].head.used);
      if (!made) return tl::unexpected(made.error());
      writer_.emplace(std::move(*made));
    }
    const std::uint32_t tokens = common_tokens(layers);
    counts_.left_out += layers.front().head.tokens - tokens;
    std::vector<ExpertId> row;
    for (std::uint32_t t = 0; t < tokens; ++t, ++counts_.tokens) {
      for (const Layer& layer : layers) {
        const std::size_t used = layer.head.used;
        const std::size_t at = (layer.head.tokens - tokens + t) * used;
        row.clear();
        for (std::size_t u = 0; u < used; ++u)
          row.push_back(static_cast<ExpertId>(layer.ids[at + u]));
        RoutingRow out;
        out.token.pos = static_cast<std::uint32_t>(counts_.tokens);
        out.layer = static_cast<std::uint32_t>(layer.head.layer);
        out.experts = row;
        if (auto ok = writer_->append(out); !ok) return ok;
      }
    }
    return {};
  }

  Result<RoutingRecord::Counts> finish() {
    if (!writer_ || counts_.tokens == 0) {
      return fail(Status::nothing_mapped, path_, "no routing was seen, and nothing is written",
                  "see \"experts\" in the report: the model must have experts and a budget that "
                  "does not hold all of it, and the program must load ggml's backends");
    }
    if (auto ok = writer_->finish(); !ok) return tl::unexpected(ok.error());
    return counts_;
  }

 private:
  std::string path_;
  std::optional<RoutingWriter> writer_;
  std::size_t layers_ = 0;
  RoutingRecord::Counts counts_;
};

}  // namespace

Result<RoutingRecord> RoutingRecord::create(const std::string& path,
                                            const std::string& run_page_path) {
  // A name that cannot be written is found before hours of computing, not after.
  if (auto probe = RoutingWriter::create(path, 2, 1); !probe) return tl::unexpected(probe.error());
  const std::string spool = routing_spool_path(run_page_path);
  Fd fd(::open(spool.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(Status::write_failed, spool, errno);
  return RoutingRecord(path, spool, std::move(fd));
}

RoutingRecord::~RoutingRecord() {
  if (fd_) ::unlink(spool_.c_str());
}

Result<RoutingRecord::Counts> RoutingRecord::finish() {
  Spool spool(fd_.get());
  Writing writing(path_);
  std::vector<Layer> graph;
  while (auto layer = spool.next()) {
    if (!graph.empty() && layer->head.layer <= graph.back().head.layer) {
      if (auto ok = writing.graph(graph); !ok) return tl::unexpected(ok.error());
      graph.clear();
    }
    graph.push_back(std::move(*layer));
  }
  if (auto ok = writing.graph(graph); !ok) return tl::unexpected(ok.error());
  return writing.finish();
}

}  // namespace resid::run
