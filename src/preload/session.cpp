#include "preload/session.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "base/log.hpp"
#include "base/sys.hpp"
#include "base/units.hpp"
#include "host/memory.hpp"
#include "preload/budget.hpp"
#include "preload/fault_signals.hpp"
#include "preload/usage.hpp"
#include "storage/fingerprint.hpp"

namespace resid::preload {
namespace {

// Initial-exec: the library is always loaded at start-up, and the general model may call malloc on
// a thread's first access.
__attribute__((tls_model("initial-exec"))) thread_local int t_depth = 0;

template <std::size_t N>
void copy_text(char (&into)[N], std::string_view text) {
  const std::size_t n = std::min(text.size(), N - 1);
  std::memcpy(into, text.data(), n);
  into[n] = '\0';
}

// Called on the fault thread or a worker: async-signal-safe (I-13, I-14).
void on_failure(void* context, Status status, const char* line) {
  auto* page = static_cast<RunPage*>(context);
  record_failure(*page, status, line);
  page->phase.store(static_cast<std::uint32_t>(RunPhase::failed));
  RawLine out;
  out << std::string_view(line);
  out.emit();
  // A thread that touches what could not be read gets its signal. These failures are no thread's:
  // the run stops here, before anything is computed from memory that we can no longer answer for.
  if (status == Status::accounting_diverged || status == Status::internal ||
      status == Status::system) {
    ::_exit(exit_code(status));
  }
}

PagerConfig pager_config(const RunConfig& run, std::uint64_t budget) {
  PagerConfig config;
  config.budget_bytes = budget;
  config.policy = run.policy;
  config.fetch_workers = run.fetch_workers;
  config.reader.engine = static_cast<ReadEngine>(run.read_engine);
  config.reader.depth = run.read_depth;
  config.reader.piece_bytes = run.read_bytes;
  config.large_frames = run.small_frames == 0;
  config.tripwires = run.no_tripwires == 0;
  config.sync_handler = run.sync_handler != 0;
  config.fetching_timeout_ms = run.fetching_timeout_ms;
  config.eager_reconcile = run.eager_reconcile != 0;
  config.protect_current = run.protect_current != 0;
  config.prefetch_depth = run.prefetch_depth;
  config.prefetch_guarded = run.prefetch_admission_always == 0;
  config.prefetch_pinned = run.prefetch_retention_none == 0;
  config.expert_cap = run.expert_cap;
  config.expert_cap_soft = run.expert_cap_raise != 0;
  config.lookahead = static_cast<LookaheadSwitch::Mode>(run.lookahead);
  config.noswap =
      run.swap_guarantee == static_cast<std::uint8_t>(host::SwapGuarantee::noswap_mount);
  config.lock_pages = run.swap_guarantee == static_cast<std::uint8_t>(host::SwapGuarantee::mlocked);
  return config;
}

}  // namespace

std::atomic<Session*> Session::instance_{nullptr};
std::atomic<Pager*> Session::pager_{nullptr};

Inside::Inside() {
  ++t_depth;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
}
Inside::~Inside() {
  ::pthread_setcancelstate(cancel_state_, nullptr);
  --t_depth;
}
bool Inside::active() {
  return t_depth > 0;
}

Session::Session(RunPage* page, TraceArea* trace, ExpertArea* experts)
    : page_(page), trace_(trace), experts_(experts) {}

void Session::start() {
  const char* path = std::getenv(kRunPageVariable);
  if (path == nullptr || *path == '\0') return;
  auto file = RunPageFile::open(path);
  if (!file) {
    RawLine out;
    out << std::string_view(file.error().line());
    out.emit();
    return;
  }
  RunPage* page = file->release();
  // Only there when the run is traced; what stands in its place otherwise is not for us.
  auto area = TraceAreaFile::open(trace_area_path(path));
  TraceArea* trace = area ? area->release() : nullptr;
  // Missing where the run could not make it: then nothing is counted.
  auto board = ExpertAreaFile::open(expert_area_path(path));
  ExpertArea* experts = board ? board->release() : nullptr;
  page->processes.fetch_add(1);
  auto started = static_cast<std::uint32_t>(RunPhase::started);
  page->phase.compare_exchange_strong(started, static_cast<std::uint32_t>(RunPhase::preloaded));
  auto* session = new Session(page, trace, experts);
  session->spool_.open(path);
  instance_.store(session, std::memory_order_release);
}

void Session::notice(Notice kind, std::string_view text) {
  const std::uint32_t bit = 1U << static_cast<std::uint32_t>(kind);
  if ((noticed_.fetch_or(bit) & bit) != 0 || page_->config.quiet != 0) return;
  RawLine out;
  out << std::string_view("residctl: ") << text;
  out.emit();
}

void Session::fail_run(const Failure& failure) {
  on_failure(page_, failure.status, failure.line().c_str());
}

const Session::Region* Session::region_of(const StoreIdentity& identity) const {
  for (const Region& region : regions_) {
    if (region.identity == identity) return &region;
  }
  return nullptr;
}

bool Session::expect_routing(ExpertSensor by) {
  const ExpertSensor wanted = page_->config.expert_sensor;
  if (wanted != ExpertSensor::automatic && wanted != by) return false;
  // The backend tells all that the callback tells, without a stop at every layer.
  ExpertSensor none = ExpertSensor::faults;
  if (by == ExpertSensor::ggml_backend) {
    expert_sensor_.store(by);
  } else {
    expert_sensor_.compare_exchange_strong(none, by);
  }
  return expert_sensor() == by;
}

bool Session::is_model(int fd) const {
  return recognised(fd, page_->config.match);
}

bool Session::is_aside(const StoreIdentity& identity) const {
  return std::find(aside_.begin(), aside_.end(), identity) != aside_.end();
}

Result<Session::Opened> Session::open(int fd, const StoreIdentity& identity) const {
  const std::string path = path_of(fd);
  auto file = read_recognised(fd, path, identity.bytes);
  if (!file) return tl::unexpected(file.error());
  const std::uint64_t chunk_max = page_->config.chunk_max;
  auto plan = plan_for(*file, chunk_max);
  if (!plan) return tl::unexpected(plan.error());
  WholeModel whole;
  const bool in_place = names_file(path, identity);
  if (pager() == nullptr) whole = whole_model(*file, *plan, in_place, chunk_max);
  return Opened{std::move(*file), std::move(*plan), whole, in_place};
}

Result<void> Session::start_pager(const Opened& model) {
  const RunConfig& config = page_->config;
  const ModelFile& file = model.file;
  const WholeModel& whole = model.whole;
  // What was mapped plainly before is page cache, which the kernel takes back when it must.
  auto budget = resolve_budget(config, whole.bytes, whole.largest_chunk);
  if (!budget) return tl::unexpected(budget.error());
  if (auto claimed = claim_budget(*page_, ::getpid()); !claimed) {
    return tl::unexpected(claimed.error());
  }
  page_->budget_bytes.store(*budget);
  page_->model_bytes.store(whole.bytes);
  copy_text(page_->model_path, file.path);
  copy_text(page_->model_architecture, file.architecture);
  PagerConfig pager = pager_config(config, *budget);
  if (pager.policy == "auto") {
    // Which expert comes next is not in the order, so that a plan for it would stream the wrong
    // ones.
    const bool experts = file.layers > 0 && file.experts != 0;
    const bool routed = expert_sensor() != ExpertSensor::faults;
    const char* of_experts = routed ? "expert_foresight" : "layer_order_declared";
    pager.policy = experts ? of_experts : "layer_order_spread";
    copy_text(page_->config.policy, pager.policy);  // the report names what ran
  }
  // Which experts come next is not in the order: fetched ahead, three of four would be in vain. And
  // a budget of a few chunks has no room for what is not needed yet.
  const bool order_known = file.experts == 0 && pager.policy != "lru";
  const bool room = pager.budget_bytes >= 16 * std::uint64_t{whole.largest_chunk};
  if (pager.prefetch_depth != 0 && page_->config.prefetch_depth_auto != 0) {
    // What is at the disk and one that is being filled in, twice, so that neither the disk nor the
    // program waits for the other's unevenness. Deeper is no faster, and slower where the slots no
    // longer fit into the processor's cache (docs/performance.md).
    const std::uint64_t at_disk = std::uint64_t{pager.reader.depth} * pager.reader.piece_bytes;
    const std::uint64_t largest = std::max<std::uint64_t>(whole.largest_chunk, 1);
    pager.prefetch_depth = static_cast<std::uint32_t>(2 * (1 + (at_disk + largest - 1) / largest));
  }
  if (page_->config.prefetch_auto != 0 && !(order_known && room)) pager.prefetch_depth = 0;
  page_->config.prefetch_depth = pager.prefetch_depth;
  if (trace_ != nullptr) {
    // A program of this run that paged before us has chunks in the trace already.
    std::uint64_t before = 0;
    const std::uint32_t known = std::min(trace_->region_count.load(), TraceArea::kMostRegions);
    for (std::uint32_t i = 0; i < known; ++i)
      before += trace_->regions[i].chunks;
    trace_->ring.first_chunk.store(static_cast<std::uint32_t>(before));
    pager.trace = &trace_->ring;
  }
  if (experts_ != nullptr) {
    pager.board = &experts_->board;
    if (model.in_place) pager.usage = remembered_usage(*experts_, file);
  }
  auto made = Pager::create(pager, page_->stats, on_failure, page_);
  if (!made) return tl::unexpected(made.error());
  copy_text(page_->uffd_route, (*made)->uffd_route());
  copy_text(page_->read_engine, (*made)->read_engine());
  page_->large_frames = (*made)->large_frames() ? 1 : 0;
  install_fault_signals(*page_);
  pager_.store(made->release(), std::memory_order_release);
  return {};
}

bool Session::stand_aside(const StoreIdentity& identity, const Opened& model) {
  if (page_->config.never_stand_aside != 0 || pager() != nullptr) return false;
  const ModelFile& file = model.file;
  const WholeModel& whole = model.whole;
  // The parts of one model are counted with the first of them.
  const bool counted = file.split_count > 1 && file.split_no > 0 && !aside_.empty();
  const std::uint64_t more = counted ? 0 : whole.bytes;
  auto budget = resolve_budget(page_->config, whole.bytes, 0);
  // A percentage is of each model, a size is for all of them.
  const std::uint64_t taken = page_->config.ram_is_percent != 0 ? 0 : aside_bytes_;
  if (!budget || *budget < page_down(taken + more)) return false;
  // No claim on the budget: several programs of a run may map plainly, and one more may page.
  if (page_->model_path[0] == '\0') {
    page_->budget_bytes.store(*budget);
    copy_text(page_->model_path, file.path);
    copy_text(page_->model_architecture, file.architecture);
    notice(Notice::stands_aside,
           "the budget holds the whole model: it is mapped plainly, residctl stands aside");
  }
  aside_.push_back(identity);
  aside_bytes_ += more;
  page_->model_bytes.fetch_add(counted ? 0 : whole.bytes);
  page_->stood_aside.store(static_cast<std::uint32_t>(aside_.size()));
  page_->phase.store(static_cast<std::uint32_t>(RunPhase::mapped));
  return true;
}

Result<RegionId> Session::add_region(int fd, const StoreIdentity& identity, Opened model) {
  const std::string path = model.file.path;
  if (pager() == nullptr) {
    if (auto started = start_pager(model); !started) {
      refused_ = true;
      fail_run(started.error());
      return tl::unexpected(started.error());
    }
  } else if (experts_ != nullptr && model.in_place && model.file.split_no == 0) {
    // One more model: what it uses is not the first one's.
    (void)remembered_usage(*experts_, model.file);
  }
  Region region;
  region.identity = identity;
  region.plain_fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (region.plain_fd < 0) return fail_errno(Status::system, path, errno);
  const std::uint32_t chunks = model.plan.size();
  auto id = pager()->add_region(fd, path, std::move(model.file), std::move(model.plan));
  if (!id) {
    ::close(region.plain_fd);
    fail_run(id.error());
    return tl::unexpected(id.error());
  }
  region.id = *id;
  region.bytes = page_up(identity.bytes);
  region.memfd = pager()->info(*id).memfd;
  regions_.push_back(region);
  if (trace_ != nullptr) trace_region(fd, path, identity.bytes, chunks);
  page_->regions.store(static_cast<std::uint32_t>(regions_.size()));
  page_->overhead_bytes.store(pager()->overhead_bytes());
  return region.id;
}

void Session::trace_region(int fd, const std::string& path, std::uint64_t bytes,
                           std::uint32_t chunks) {
  const std::uint32_t at = trace_->region_count.load();
  if (at >= TraceArea::kMostRegions) return;
  TraceArea::Region& region = trace_->regions[at];
  region.bytes = bytes;
  region.chunks = chunks;
  path.copy(region.path.data(), region.path.size() - 1);
  if (const auto store = Store::open(fd, path)) {
    if (const auto print = fingerprint(*store)) region.fingerprint = *print;
  }
  trace_->region_count.store(at + 1);
}

Result<void*> Session::map_view(RegionId region, void* address, std::uint64_t bytes, int flags,
                                std::uint64_t offset) {
  auto mapped =
      pager()->map_view(region, address, bytes, flags & (MAP_FIXED | MAP_FIXED_NOREPLACE), offset);
  if (!mapped) return mapped;
  const auto begin = reinterpret_cast<std::uintptr_t>(*mapped);
  views_.add({.range = {begin, begin + page_up(bytes)}, .region = region, .offset = offset});
  page_->mapped_bytes.fetch_add(page_up(bytes));
  auto phase = page_->phase.load();
  while (phase < static_cast<std::uint32_t>(RunPhase::mapped) &&
         !page_->phase.compare_exchange_weak(phase, static_cast<std::uint32_t>(RunPhase::mapped))) {
  }
  return mapped;
}

MapAnswer Session::map(void* address, std::size_t bytes, int protection, int flags, int fd,
                       off_t offset) {
  const Inside inside;
  // What the kernel refuses, or what is not a mapping of this file's bytes, is the kernel's.
  if (fd < 0 || (flags & MAP_ANONYMOUS) != 0 || bytes == 0 || offset < 0 ||
      offset % static_cast<off_t>(kPage) != 0 || (protection & PROT_READ) == 0) {
    return {};
  }
  const int access = ::fcntl(fd, F_GETFL);
  if (access < 0 || (access & O_PATH) != 0 || (access & O_ACCMODE) == O_WRONLY) return {};
  StoreIdentity identity;
  int error = 0;
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0 || offset >= st.st_size) {
    return {};
  }
  if (!store_identity(fd, identity, error) || !is_model(fd)) return {};
  if (detached_) {
    notice(Notice::forked_child,
           "a forked child maps a model itself: that mapping is not under control");
    return {};
  }
  if ((protection & PROT_WRITE) != 0) {
    notice(Notice::writable_mapping,
           "a model is mapped writable: that mapping is not under control");
    return {};
  }
  constexpr int kUsual = MAP_TYPE | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_POPULATE | MAP_LOCKED |
                         MAP_NORESERVE | MAP_NONBLOCK | MAP_DENYWRITE | MAP_EXECUTABLE;
  if ((protection & ~(PROT_READ)) != 0 || (flags & ~kUsual) != 0) {
    notice(Notice::unusual_mapping,
           "a model is mapped executable or with unusual flags: that mapping is not under control");
    return {};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0 && begin % kPage != 0) return {};

  Result<void*> mapped;
  {
    const std::lock_guard guard(mutex_);
    // The failure has been told; a program that tries again gets the same answer in silence.
    if (refused_) return {MapAnswer::Kind::refused, nullptr, ENOMEM};
    if (is_aside(identity)) return {};
    RegionId region = 0;
    if (const Region* known = region_of(identity)) {
      region = known->id;
    } else {
      auto model = open(fd, identity);
      if (model && stand_aside(identity, *model)) return {};
      const auto added = model ? add_region(fd, identity, std::move(*model))
                               : Result<RegionId>(tl::unexpected(model.error()));
      if (!added) {
        const Failure& failure = added.error();
        if (failure.status == Status::malformed || failure.status == Status::unsupported ||
            failure.status == Status::not_a_model) {
          // The program reads the same header and will say so in its own words.
          notice(Notice::unreadable_model,
                 failure.what + " : " + failure.why + " : its mapping is not under control");
          return {};
        }
        return {MapAnswer::Kind::refused, nullptr, ENOMEM};
      }
      region = *added;
    }
    if ((flags & MAP_FIXED) != 0) {
      for (const Piece& piece : views_.pieces({begin, begin + page_up(bytes)}))
        forget(piece);
    }
    mapped = map_view(region, address, bytes, flags, static_cast<std::uint64_t>(offset));
  }
  if (!mapped) {
    if ((flags & MAP_FIXED_NOREPLACE) != 0) return {MapAnswer::Kind::refused, nullptr, EEXIST};
    notice(Notice::map_failed, mapped.error().what + " : " + mapped.error().why);
    return {MapAnswer::Kind::refused, nullptr, ENOMEM};
  }
  if ((flags & MAP_LOCKED) != 0) {
    // mmap(2): a MAP_LOCKED mapping succeeds even where its population fails.
    const auto at = reinterpret_cast<std::uintptr_t>(*mapped);
    (void)lock({at, at + page_up(bytes)});
  }
  return {MapAnswer::Kind::mapped, *mapped, 0};
}

void Session::forget(const Piece& piece) {
  if (!piece.is_view) return;
  locks_.remove(piece.range, [this](Range range) { return pin(range); });
  (void)pager()->unmap_view(reinterpret_cast<void*>(piece.range.begin), piece.range.bytes());
  page_->mapped_bytes.fetch_sub(views_.remove(piece.range));
}

int Session::unmap(Range range) {
  const Inside inside;
  const std::lock_guard guard(mutex_);
  int error = 0;
  for (const Piece& piece : views_.pieces(range)) {
    if (piece.is_view) {
      forget(piece);
    } else if (sys::munmap(reinterpret_cast<void*>(piece.range.begin), piece.range.bytes()) != 0) {
      error = errno;
    }
  }
  return error;
}

MapAnswer Session::remap(Range old, std::size_t bytes, int flags, void* wanted) {
  using Kind = MapAnswer::Kind;
  const Inside inside;
  const bool may_move = (flags & MREMAP_MAYMOVE) != 0;
  const bool fixed = (flags & MREMAP_FIXED) != 0;
  const bool keep_old = (flags & MREMAP_DONTUNMAP) != 0;
  const auto target = reinterpret_cast<std::uintptr_t>(wanted);
  const std::uint64_t new_bytes = page_up(bytes);
  const std::uint64_t old_bytes = old.bytes();
  if (old.begin % kPage != 0 || bytes == 0 || ((fixed || keep_old) && !may_move) ||
      (keep_old && new_bytes != old_bytes)) {
    return {Kind::refused, nullptr, EINVAL};
  }
  if (fixed && (target % kPage != 0 || (target < old.end && target + new_bytes > old.begin))) {
    return {Kind::refused, nullptr, EINVAL};
  }
  const std::lock_guard guard(mutex_);
  // An old size of 0 asks for a second mapping of the same shared object (mremap(2)).
  const bool duplicate = old_bytes == 0;
  const auto view = views_.holder(duplicate ? Range{old.begin, old.begin + 1} : old);
  if (!view) return {Kind::refused, nullptr, EFAULT};
  if (duplicate && !may_move) return {Kind::refused, nullptr, EINVAL};
  const std::uint64_t offset = view->offset + (old.begin - view->range.begin);

  if (!fixed && !duplicate && !keep_old) {
    if (new_bytes <= old_bytes) {
      if (new_bytes < old_bytes) {
        for (const Piece& piece : views_.pieces({old.begin + new_bytes, old.end}))
          forget(piece);
      }
      return {Kind::mapped, reinterpret_cast<void*>(old.begin), 0};
    }
    if (old.end == view->range.end) {
      auto tail = map_view(view->region, reinterpret_cast<void*>(old.end), new_bytes - old_bytes,
                           MAP_FIXED_NOREPLACE, offset + old_bytes);
      if (tail) return {Kind::mapped, reinterpret_cast<void*>(old.begin), 0};
    }
    if (!may_move) return {Kind::refused, nullptr, ENOMEM};
  }
  // Views are read-only, so a second view of the same bytes is indistinguishable from moved pages.
  if (fixed) {
    for (const Piece& piece : views_.pieces({target, target + new_bytes}))
      forget(piece);
  }
  auto moved =
      map_view(view->region, fixed ? wanted : nullptr, new_bytes, fixed ? MAP_FIXED : 0, offset);
  if (!moved) return {Kind::refused, nullptr, ENOMEM};
  if (!duplicate && !keep_old) {
    locks_.move(old, reinterpret_cast<std::uintptr_t>(*moved));
    for (const Piece& piece : views_.pieces(old))
      forget(piece);
  }
  return {Kind::mapped, *moved, 0};
}

std::vector<Piece> Session::pieces(Range range) {
  const std::lock_guard guard(mutex_);
  return views_.pieces(range);
}

std::optional<Pin> Session::pin(Range range) {
  auto pinned = pager()->pin(reinterpret_cast<const void*>(range.begin), range.bytes());
  if (!pinned) return std::nullopt;
  return std::move(*pinned);
}

// A mapping may reach past the end of its file; there is nothing to pin there.
std::vector<Piece> Session::lockable(Range range) {
  const std::lock_guard guard(mutex_);
  std::vector<Piece> out;
  for (Piece piece : views_.pieces(range)) {
    if (!piece.is_view) continue;
    const std::uint64_t end = regions_[piece.region].bytes;
    if (piece.offset >= end) continue;
    piece.range.end = piece.range.begin + std::min(piece.range.bytes(), end - piece.offset);
    out.push_back(piece);
  }
  return out;
}

int Session::lock(Range range) {
  const Inside inside;
  const std::vector<Piece> pieces = lockable(range);
  std::vector<Pin> pins;
  pins.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    // Outside the lock: this may read gigabytes, and fork waits for the lock.
    auto pinned =
        pager()->pin(reinterpret_cast<const void*>(piece.range.begin), piece.range.bytes());
    if (!pinned) {
      notice(Notice::lock_infeasible,
             "mlock of a part of the model is refused: the budget (--ram) decides what stays in "
             "memory");
      return ENOMEM;  // the pins taken so far go: a failed mlock changes nothing
    }
    pins.push_back(std::move(*pinned));
  }
  const std::lock_guard guard(mutex_);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    locks_.add(pieces[i].range, std::move(pins[i]));
  }
  return 0;
}

void Session::unlock(Range range) {
  const Inside inside;
  const std::lock_guard guard(mutex_);
  locks_.remove(range, [this](Range part) { return pin(part); });
}

void Session::unlock_all() {
  const Inside inside;
  const std::lock_guard guard(mutex_);
  locks_.clear();
}

void Session::after_fork_in_child() {
  mutex_.unlock();
  if (!aside_.empty()) detached_ = true;  // as below: what it maps itself is not under control
  if (pager() == nullptr) return;
  // The pager's threads stayed in the parent. Its object is not touched again here.
  pager_.store(nullptr, std::memory_order_release);
  detached_ = true;
  views_.for_each([this](const View& view) {
    // The views were not copied (MADV_DONTFORK): where this fails a touch is a SIGSEGV, loud, and
    // never zeros.
    sys::mmap(reinterpret_cast<void*>(view.range.begin), view.range.bytes(), PROT_READ,
              MAP_SHARED | MAP_FIXED, regions_[view.region].plain_fd, view.offset);
  });
  // A child that outlives its parent must not keep the budget's pages alive.
  for (const Region& region : regions_)
    ::close(region.memfd);
}

}  // namespace resid::preload
