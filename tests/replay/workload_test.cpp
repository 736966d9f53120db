// What a replay reads, and how it is refused.

#include "replay/workload.hpp"

#include <sys/stat.h>

#include <fstream>
#include <numeric>

#include "base/units.hpp"
#include "replay_support.hpp"
#include "synth/synth.hpp"

namespace resid {
namespace {

using test::fresh_path;
using test::GeneratedStore;
using test::MiB;

TEST(ScanWorkload, IsEveryChunkInOrder) {
  const GeneratedStore store(5 * MiB);
  const auto w = Workload::scan(store.path(), 2 * MiB);
  ASSERT_TRUE(w) << w.error().line();
  EXPECT_EQ(w->sequence, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_TRUE(w->cyclic_scan);
  EXPECT_EQ(w->sequence_bytes(), 5 * MiB);
  EXPECT_EQ(w->referenced_bytes(), 5 * MiB);
  EXPECT_EQ(w->expected.size(), 5 * MiB / 4096);
}

// The formula, not the file, says what is right.
TEST(ScanWorkload, ExpectsTheFormulaEvenFromASpoiltFile) {
  const GeneratedStore store(2 * MiB);
  const auto before = Workload::scan(store.path(), MiB);
  store.spoil(MiB / 2 + 4096 * 3 + 77);  // not among the sampled pages
  const auto after = Workload::scan(store.path(), MiB);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->expected, after->expected);
}

TEST(ScanWorkload, RefusesAnotherFile) {
  const std::string path = fresh_path();
  std::ofstream(path) << std::string(8192, 'x');
  const auto w = Workload::scan(path, 4096);
  ASSERT_FALSE(w);
  EXPECT_EQ(exit_code(w.error().status), 2);
  ::unlink(path.c_str());
}

TEST(AWorkload, RefusesWhatIsNoFile) {
  EXPECT_EQ(Workload::scan("/no/such/file", 4096).error().status, Status::no_such_file);
  EXPECT_EQ(Workload::scan("/tmp", 4096).error().status, Status::not_a_file);
  const std::string path = fresh_path();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(Workload::model(path, 4096).error().status, Status::not_a_file);
  ::unlink(path.c_str());
  { const std::ofstream empty(path); }
  EXPECT_EQ(Workload::model(path, 4096).error().status, Status::empty_file);
  ::unlink(path.c_str());
}

TEST(ModelWorkload, FollowsTheForwardPassAndKnowsEveryPage) {
  SynthRequest request;
  request.layers = 2;
  request.hidden = 64;
  request.ff = 128;
  request.vocab = 300;
  const auto shape = resolve_shape(request);
  ASSERT_TRUE(shape) << shape.error().line();
  const std::string path = fresh_path();
  ASSERT_TRUE(write_synth(*shape, path, {}));
  const auto w = Workload::model(path, 64 * 1024);
  ASSERT_TRUE(w) << w.error().line();
  EXPECT_FALSE(w->sequence.empty());
  EXPECT_FALSE(w->cyclic_scan);
  EXPECT_LE(w->referenced_bytes(), w->plan.mapped_bytes());
  // Layers come in order; the output last.
  std::int32_t layer = 0;
  for (const std::uint32_t chunk : w->sequence) {
    if (w->plan[chunk].layer == kNoLayer || w->plan[chunk].seam) continue;
    EXPECT_GE(w->plan[chunk].layer, layer);
    layer = w->plan[chunk].layer;
  }
  // The sums of the pages are those of the file, zeros past its end.
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  bytes.resize(page_up(bytes.size()));
  for (std::uint64_t page = 0; page < bytes.size() / kPage; ++page) {
    std::vector<std::uint64_t> words(512);
    std::copy_n(bytes.data() + page * kPage, kPage, reinterpret_cast<char*>(words.data()));
    ASSERT_EQ(w->expected[page], page_sum(words.data(), page)) << "page " << page;
  }
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace resid
