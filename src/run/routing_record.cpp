#include "run/routing_record.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
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
    const RoutingSpoolHead& head = layer.head;
    constexpr std::uint32_t kTokensMost = 1U << 22;
    if (head.magic != RoutingSpoolHead::kMagic || head.used == 0 || head.used > kExpertsUsedMost ||
        head.experts > kExpertsMost || head.tokens == 0 || head.tokens > kTokensMost) {
      return std::nullopt;
    }
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

  // First of all graphs: what most tokens were computed with is the model's shape. A warm-up asks
  // for all experts, a piece of a prompt may have no last layer, a graph may have been broken off.
  void look_at(const std::vector<Layer>& layers) {
    if (!layers.empty()) shapes_[shape(layers)] += common_tokens(layers);
  }
  void decide() {
    const auto most =
        std::max_element(shapes_.begin(), shapes_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != shapes_.end()) shape_ = most->first;
  }

  Result<void> graph(const std::vector<Layer>& layers) {
    if (layers.empty()) return {};
    // Which tokens of several sequences have an output is not known: such rows cannot be joined.
    const std::uint32_t last = layers.back().head.tokens;
    const std::uint32_t first = layers.front().head.tokens;
    if (shape_ == Shape{} || shape(layers) != shape_ || (last != first && last != 1)) {
      counts_.left_out += first;
      return {};
    }
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
                  "does not hold all of it, and the program must link ggml dynamically");
    }
    if (auto ok = writer_->finish(); !ok) return tl::unexpected(ok.error());
    return counts_;
  }

 private:
  // Layers, experts and how many a token uses; {} where layers differ in that.
  using Shape = std::array<std::size_t, 3>;
  static Shape shape(const std::vector<Layer>& layers) {
    const RoutingSpoolHead& head = layers.front().head;
    for (const Layer& layer : layers) {
      if (layer.head.used != head.used || layer.head.experts != head.experts) return {};
    }
    return {layers.size(), head.experts, head.used};
  }

  std::string path_;
  std::map<Shape, std::uint64_t> shapes_;  // tokens
  Shape shape_{};
  std::optional<RoutingWriter> writer_;
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
  Writing writing(path_);
  const auto each_graph = [this](auto&& f) -> Result<void> {
    Spool spool(fd_.get());
    std::vector<Layer> graph;
    while (auto layer = spool.next()) {
      if (!graph.empty() && layer->head.layer <= graph.back().head.layer) {
        if (auto ok = f(graph); !ok) return ok;
        graph.clear();
      }
      graph.push_back(std::move(*layer));
    }
    return f(graph);
  };
  (void)each_graph([&](const std::vector<Layer>& graph) -> Result<void> {
    writing.look_at(graph);
    return {};
  });
  writing.decide();
  auto written = each_graph([&](const std::vector<Layer>& graph) { return writing.graph(graph); });
  if (!written) return tl::unexpected(written.error());
  return writing.finish();
}

}  // namespace resid::run
