#include "pager/pager.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <span>
#include <system_error>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/signals.hpp"
#include "base/sys.hpp"
#include "pager/impl.hpp"
#include "sense/experts.hpp"
#include "sense/order.hpp"

namespace resid {
namespace {

// Of a model's bytes, what the memory of its lookahead may be at most.
constexpr std::uint64_t kLookaheadShare = 64;

std::uint64_t as_address(const void* p) {
  return reinterpret_cast<std::uint64_t>(p);
}

Result<std::unique_ptr<Policy>> configured_policy(const PagerConfig& config) {
  auto policy = make_policy(config.policy);
  if (policy) {
    (*policy)->set_signal_mode(config.signal_mode);
    (*policy)->set_protect_current(config.protect_current);
    (*policy)->set_cap(config.expert_cap);
  }
  return policy;
}

}  // namespace

// ---- Life

Pager::Pager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Pager>> Pager::create(const PagerConfig& config, PagerStats& stats,
                                             FailureHook hook, void* context) {
  if (config.fetch_workers == 0 || config.fetch_workers > 256) {
    return fail(Status::usage, "fetch workers",
                fmt::format("{} is not between 1 and 256", config.fetch_workers));
  }
  auto policy = configured_policy(config);
  if (!policy) return tl::unexpected(policy.error());
  auto uffd = Userfault::open();
  if (!uffd) return tl::unexpected(uffd.error());
  // What is locked is locked page by page, through the fill view.
  auto frames = host::FrameSource::open(config.large_frames && !config.lock_pages, config.noswap);
  if (!frames) return tl::unexpected(frames.error());
  auto impl = std::make_unique<Impl>(config, stats, hook, context, std::move(*uffd),
                                     std::move(*frames), std::move(*policy));
  impl->stop_event.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!impl->stop_event) return fail_errno(Status::system, "eventfd", errno);
  impl->retained.assign(config.prefetch_depth, kNoChunk);
  impl->next_up.assign(config.prefetch_depth, kNoChunk);
  impl->regions.reserve(64);
  impl->last_watchdog_ns = now_ns();

  const SignalsBlocked blocked;
  auto reader = Reader::create(
      config.reader,
      [](void* self, ReadRequest& request) { static_cast<Impl*>(self)->read_done(request); },
      impl.get());
  if (!reader) return tl::unexpected(reader.error());
  impl->reader = std::move(*reader);

  std::unique_ptr<Pager> pager(new Pager(std::move(impl)));
  Impl& p = *pager->impl_;
  try {
    p.fault_thread = std::thread([&p] {
      ::pthread_setname_np(::pthread_self(), "resid-fault");
      p.fault_loop();
    });
    // With a synchronous handler one worker is left, for prefetches and for what a punch has
    // overtaken.
    const std::uint32_t count = config.sync_handler ? 1 : config.fetch_workers;
    for (std::uint32_t i = 0; i < count; ++i) {
      p.workers.emplace_back([&p] {
        ::pthread_setname_np(::pthread_self(), "resid-fetch");
        p.worker_loop();
      });
    }
  } catch (const std::system_error& e) {
    return fail(Status::out_of_memory, "starting the pager's threads", e.what());
  }
  return pager;
}

Pager::~Pager() {
  Impl& p = *impl_;
  {
    const Lock lock(p.mutex);
    p.stop.store(true);
  }
  const std::uint64_t one = 1;
  (void)!sys::write(p.stop_event.get(), &one, sizeof one);
  p.work.notify_all();
  p.transition.notify_all();
  if (p.fault_thread.joinable()) p.fault_thread.join();
  for (std::thread& worker : p.workers)
    worker.join();
  {
    // What is on its way from the disk lands in memory of ours.
    Lock lock(p.mutex);
    p.transition.wait(lock, [&p] { return p.staging.reading() == 0; });
  }
  p.reader.reset();
  for (const View& v : p.views.all()) {
    sys::munmap(reinterpret_cast<void*>(v.begin), v.end - v.begin);
  }
}

// ---- Regions and views

Result<RegionId> Pager::add_region(int fd, const std::string& path, ModelFile file,
                                   ChunkPlan plan) {
  Impl& p = *impl_;
  auto opened =
      Region::open(fd, path, std::move(file), std::move(plan), p.frames, p.config.lock_pages);
  if (!opened) return tl::unexpected(opened.error());
  std::unique_ptr<Region> region = std::move(*opened);
  const std::uint32_t largest = region->plan().largest();
  const std::uint64_t run_bytes = ChunkPlan::span_bytes(largest);
  Staging::Slots slots;
  bool ranked = false;
  {
    Lock lock(p.mutex);
    const std::uint64_t now_for = p.staging.run_bytes();
    ranked = p.policy->ranks_experts();
    lock.unlock();
    if (now_for < run_bytes) {
      slots = Staging::make_slots(run_bytes, p.config.budget_bytes);
      if (slots.empty()) {
        return fail(Status::out_of_memory, path,
                    fmt::format("no memory to read chunks of {} into", format_bytes(largest)));
      }
    }
  }

  std::unique_ptr<Lookahead> lookahead;
  if (ranked && p.config.lookahead != LookaheadSwitch::Mode::off && !region->experts().empty()) {
    auto router =
        RouterLookahead::make(region->file(), region->experts(), region->store().plain_fd(),
                              region->store().bytes() / kLookaheadShare);
    if (router) lookahead = std::make_unique<Lookahead>(std::move(router), p.config.lookahead);
  }

  // The policy for the larger set of chunks is made here and only exchanged under the lock, so that
  // nobody waits for the allocator there (I-13). Regions are only ever added, by one thread at a
  // time per pager; the loop is for the case that another one came in between.
  std::vector<const Region*> before(p.regions.capacity());
  for (;;) {
    std::vector<OrderedFile> files;
    std::vector<std::uint32_t> bytes;
    std::size_t seen = 0;
    {
      const Lock lock(p.mutex);
      for (const auto& r : p.regions)
        before[seen++] = r.get();
    }
    const auto append = [&](const Region& r, ChunkId first) {
      files.push_back({&r.file(), &r.plan(), first});
      for (const Chunk& c : r.plan().chunks())
        bytes.push_back(c.bytes);
    };
    for (const Region* r : std::span(before).first(seen))
      append(*r, r->first_chunk);
    const auto first = static_cast<ChunkId>(bytes.size());
    append(*region, first);
    auto policy = configured_policy(p.config);
    if (!policy) return tl::unexpected(policy.error());
    (*policy)->grow(bytes);
    const auto order = forward_order(files, (*policy)->ranks_experts());
    (*policy)->declare_sequence(order);
    Impl::Warm warm;
    if ((*policy)->ranks_experts()) {
      const ExpertMap map = expert_map(files);
      (*policy)->declare_experts(map);
      (*policy)->declare_usage(p.config.usage);
      warm = Impl::warm_list(files, order, bytes, map, p.config);
    }

    Lock lock(p.mutex);
    if (p.regions.size() != seen) continue;
    const std::uint32_t new_largest = std::max(p.largest_chunk, largest);
    const std::uint64_t limit = p.budget.limit();
    const std::uint64_t pinned = p.budget.pinned;
    if (pinned + 2 * std::uint64_t{new_largest} > limit) {
      lock.unlock();  // text takes memory
      return fail(
          Status::budget_too_small, path,
          fmt::format("a budget of {} with {} pinned is less than two chunks of {}",
                      format_bytes(limit), format_bytes(pinned), format_bytes(new_largest)));
    }
    if (p.regions.size() == p.regions.capacity()) {
      lock.unlock();
      return fail(Status::system, path,
                  fmt::format("{} model files are under control already", seen),
                  "use fewer files, or fewer parts");
    }
    for (const auto& r : p.regions) {
      for (ChunkIndex i = 0; i < r->plan().size(); ++i) {
        const ChunkState& c = r->chunk(i);
        if (c.phase() == ChunkPhase::resident && c.pins() == 0) {
          (*policy)->candidate(r->first_chunk + i);
        }
      }
    }
    p.policy.swap(*policy);
    std::swap(p.warm, warm);
    p.policy->set_tripwires(p.tripwire_rate.most());
    region->lookahead = std::move(lookahead);
    region->id = static_cast<std::uint32_t>(seen);
    region->first_chunk = first;
    p.largest_chunk = new_largest;
    p.staging.adopt(lock, slots, run_bytes);
    p.reader->add_store(region->store());
    p.regions.push_back(std::move(region));
    p.show_layers(lock, *p.regions.back());
    p.replan(lock);
    lock.unlock();
    return static_cast<RegionId>(seen);
  }
}

RegionInfo Pager::info(RegionId region) const {
  const Lock lock(impl_->mutex);
  const Region& r = *impl_->regions.at(region);
  return {r.store().path(), r.store().bytes(), r.first_chunk, r.plan().size(), r.memfd()};
}

Result<void*> Pager::map_view(RegionId region, void* address, std::uint64_t bytes, int flags,
                              std::uint64_t offset) {
  Impl& p = *impl_;
  Region* r = nullptr;
  {
    const Lock lock(p.mutex);
    r = p.regions.at(region).get();
  }
  constexpr int kFixedNoReplace = 0x100000;  // MAP_FIXED_NOREPLACE, kernel 4.17
  const int kept = flags & (MAP_FIXED | kFixedNoReplace);
  // Refused before the table is touched, which holds whole pages.
  if (bytes == 0 || offset % kPage != 0 || (kept != 0 && as_address(address) % kPage != 0)) {
    return fail_errno(Status::system, "mmap of " + r->store().path(), EINVAL);
  }
  bytes = page_up(bytes);
  std::vector<View> cut;
  if ((kept & MAP_FIXED) != 0) {
    // What lay there is gone as soon as the kernel has mapped over it.
    p.views.remove(as_address(address), as_address(address) + bytes, cut);
  }
  // Shared and writable at heart: userfaultfd refuses a mapping that may not be written
  // (VM_MAYWRITE); mprotect is the interposer's business.
  void* mapped = sys::mmap(address, bytes, PROT_READ, MAP_SHARED | kept, r->memfd(), offset);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    p.restore(cut);
    return fail_errno(error == ENOMEM ? Status::out_of_memory : Status::system,
                      "mmap of " + r->store().path(), error);
  }
  r->forbid_large(static_cast<std::uint8_t*>(mapped), offset, bytes);  // I-9
  sys::madvise(mapped, bytes, MADV_DONTFORK);                          // I-15
  sys::madvise(mapped, bytes, MADV_DONTDUMP);
  const std::uint64_t begin = as_address(mapped);
  if (const int error = p.uffd.add_range(begin, bytes); error != 0) {
    sys::munmap(mapped, bytes);
    if (!cut.empty()) p.uffd.wake(begin, bytes);
    return fail_errno(Status::no_userfaultfd, "registering " + r->store().path(), error);
  }
  p.views.add({begin, begin + bytes, region, offset});
  {
    const Lock lock(p.mutex);
    p.warm_open = true;
    if (p.warming(lock)) p.work.notify_one();
  }
  if (!cut.empty()) p.uffd.wake(begin, bytes);  // who slept on the old mapping meets the new one
  return mapped;
}

Result<void> Pager::unmap_view(void* address, std::uint64_t bytes) {
  Impl& p = *impl_;
  const std::uint64_t begin = as_address(address);
  if (begin % kPage != 0) return fail_errno(Status::system, "munmap", EINVAL);
  std::vector<View> cut;
  const std::uint64_t end = begin + page_up(bytes);
  p.views.remove(begin, end, cut);
  if (sys::munmap(address, bytes) == 0) {
    // A thread that sleeps on a fault there is not woken by the kernel; it shall get its SIGSEGV.
    if (!cut.empty()) p.uffd.wake(begin, end - begin);
    return {};
  }
  const int error = errno;
  p.restore(cut);
  return fail_errno(Status::system, "munmap", error);
}

bool Pager::in_view(const void* address, std::uint64_t bytes) const {
  const std::uint64_t begin = as_address(address);
  return impl_->views.overlaps(begin, begin + bytes);
}

// ---- Pins

Pin::Pin(Pin&& other) noexcept
    : pager_(std::exchange(other.pager_, nullptr)), first_(other.first_), count_(other.count_) {}

Pin& Pin::operator=(Pin&& other) noexcept {
  if (this != &other) {
    if (pager_ != nullptr) pager_->unpin(first_, count_);
    pager_ = std::exchange(other.pager_, nullptr);
    first_ = other.first_;
    count_ = other.count_;
  }
  return *this;
}

Pin::~Pin() {
  if (pager_ != nullptr) pager_->unpin(first_, count_);
}

Result<Pin> Pager::pin(const void* address, std::uint64_t bytes) {
  Impl& p = *impl_;
  const auto shown = p.shown(address, bytes);
  if (!shown) {
    return fail(Status::usage, "pin", "the range is not inside one app view",
                "pin what was mapped, one mapping at a time");
  }
  Lock lock(p.mutex);
  Region& region = *p.regions[shown->region];
  const std::uint64_t offset = shown->offset;
  if (offset + bytes > region.plan().mapped_bytes()) {
    return fail(Status::usage, "pin", "the range reaches past the end of the file");
  }
  const ChunkIndex first = region.plan().find(offset);
  const ChunkIndex last = region.plan().find(offset + bytes - 1);

  // What leaves less than two chunks for demand fetches would stop them.
  std::uint64_t fresh = 0;
  for (ChunkIndex i = first; i <= last; ++i) {
    if (region.chunk(i).holds == 0) fresh += region.plan()[i].bytes;
  }
  const std::uint64_t keep_free = 2 * std::uint64_t{p.largest_chunk};
  const std::uint64_t limit = p.budget.limit();
  if (p.budget.pinned + fresh + keep_free > limit) {
    lock.unlock();  // text takes memory
    return fail(Status::infeasible, region.store().path(),
                fmt::format("pinning {} more would leave less than {} of the budget of {}",
                            format_bytes(fresh), format_bytes(keep_free), format_bytes(limit)));
  }
  // Claimed for the whole range at once, so that two pins cannot both squeeze into the last room.
  for (ChunkIndex i = first; i <= last; ++i)
    p.add_hold(lock, region.first_chunk + i);
  p.replan_for_pins(lock);
  Pin handle;
  handle.pager_ = this;
  handle.first_ = region.first_chunk + first;
  bool poisoned = false;
  for (ChunkIndex i = first; i <= last && !poisoned;) {
    switch (region.chunk(i).phase()) {
      case ChunkPhase::resident:
        p.add_pin(lock, region.first_chunk + i);
        ++handle.count_;
        ++i;
        break;
      case ChunkPhase::absent:
        p.demand_run(lock, p.begin_run(lock, region, {i, 1}, i, now_ns()));
        break;
      case ChunkPhase::fetching:
        // A prefetch may wait for room for as long as nobody wants it.
        if (region.chunk(i).prefetched()) {
          p.demand_prefetched(lock, region.first_chunk + i, now_ns());
          break;
        }
        [[fallthrough]];
      case ChunkPhase::evicting:
        p.transition.wait(lock);
        break;
      case ChunkPhase::poisoned:
        poisoned = true;
        // The handle gives back what it has pinned; the rest was only claimed.
        for (; i <= last; ++i)
          p.drop_hold(lock, region.first_chunk + i);
        break;
    }
  }
  lock.unlock();  // the handle gives back what it holds when it dies, and needs the lock then
  if (poisoned) {
    return fail(Status::read_failed, region.store().path(),
                "a part of the range could not be read");
  }
  return handle;
}

void Pager::unpin(ChunkId first, std::uint32_t count) {
  Impl& p = *impl_;
  Lock lock(p.mutex);
  for (ChunkId id = first; id < first + count; ++id) {
    p.drop_hold(lock, id);
    p.drop_pin(lock, id);
  }
  p.replan_for_pins(lock);
  p.room_came(lock);
  p.transition.notify_all();
}

Pager::ChunkRange Pager::chunks_under(const void* address, std::uint64_t bytes) const {
  const Impl& p = *impl_;
  const auto shown = p.shown(address, bytes);
  if (!shown) return {};
  const Lock lock(p.mutex);
  const Region& region = *p.regions[shown->region];
  const std::uint64_t offset = shown->offset;
  const std::uint64_t end = std::min(offset + bytes, region.plan().mapped_bytes());
  if (offset >= end) return {};
  const ChunkIndex first = region.plan().find(offset);
  return {region.first_chunk + first, region.plan().find(end - 1) - first + 1};
}

std::uint64_t Pager::resident_under(const void* address, std::uint64_t bytes) const {
  const Impl& p = *impl_;
  const ChunkRange range = chunks_under(address, bytes);
  const auto shown = p.shown(address, bytes);
  if (range.count == 0 || !shown) return 0;
  const Lock lock(p.mutex);
  const std::uint64_t offset = shown->offset;
  std::uint64_t sum = 0;
  for (ChunkId id = range.first; id != range.first + range.count; ++id) {
    const Impl::Place place = p.locate(id);
    if (place.region->chunk(place.index).phase() != ChunkPhase::resident) continue;
    const Chunk& c = place.region->plan()[place.index];
    sum += std::min(c.offset + c.bytes, offset + bytes) - std::max(c.offset, offset);
  }
  return sum;
}

std::uint32_t Pager::will_need(const void* address, std::uint64_t bytes) {
  Impl& p = *impl_;
  const ChunkRange range = chunks_under(address, bytes);
  std::uint32_t queued = 0;
  Lock lock(p.mutex);
  for (ChunkId id = range.first; id != range.first + range.count; ++id) {
    if (!p.staging.has_room_ahead(lock, p.bytes_of(id))) break;
    queued += p.queue_prefetch(lock, id, now_ns());
  }
  return queued;
}

// ---- Policy, budget, accounting

void Pager::notify_access(ChunkId chunk) {
  Impl& p = *impl_;
  Lock lock(p.mutex);
  p.policy->on_access(chunk);
  ChunkState& c = p.state(chunk);
  if (c.phase() == ChunkPhase::resident && c.prefetched()) p.consumed(lock, chunk, now_ns());
  p.room_came(lock);
}

void Pager::declare_sequence(std::span<const ChunkId> sequence) {
  const Lock lock(impl_->mutex);
  impl_->policy->declare_sequence(sequence);
  impl_->replan(lock);
  impl_->room_came(lock);
}

Result<void> Pager::set_budget(std::uint64_t bytes) {
  Impl& p = *impl_;
  Lock lock(p.mutex);
  const std::uint64_t floor = p.budget.pinned + 2 * std::uint64_t{p.largest_chunk};
  if (bytes < floor) {
    lock.unlock();  // text takes memory
    return fail(Status::budget_too_small, "budget",
                fmt::format("{} is less than the {} that pins and two chunks need",
                            format_bytes(bytes), format_bytes(floor)));
  }
  const std::uint64_t before = p.budget.limit();
  p.budget.set_limit(lock, bytes);
  p.replan(lock);
  p.room_came(lock);
  p.transition.notify_all();  // more may fit now
  while (p.budget.held() > bytes) {
    const ChunkId victim = p.policy->select_victim();
    bool progress = true;
    if (victim != kNoChunk) {
      progress = p.evict_one(lock, victim);
    } else if (!p.break_retention(lock) && !p.break_current(lock)) {
      progress = p.await_transition(lock);  // fetches that are under way become evictable
    }
    if (!progress) {
      p.budget.set_limit(lock, before);
      p.replan(lock);
      lock.unlock();
      return fail(Status::system, "budget", "memory could not be given back");
    }
  }
  return {};
}

std::uint64_t Pager::budget() const {
  const Lock lock(impl_->mutex);
  return impl_->budget.limit();
}

std::uint64_t Pager::resident_bytes() const {
  const Lock lock(impl_->mutex);
  return impl_->budget.resident();
}

void Pager::settle() {
  Impl& p = *impl_;
  Lock lock(p.mutex);
  while (p.punch_ahead(lock)) {
  }
  p.transition.wait(lock, [&] {
    if (!p.idle(lock)) return p.stop.load();
    // A prefetch that waits for room in its slot has been read and counted.
    return p.stop.load() || (p.demand.size == 0 && p.prefetch.size == 0 && p.jobs_in_hand == 0 &&
                             p.staging.reading() == 0 && p.staging.first_demand() == nullptr &&
                             (p.staging.waiting() == 0 || !p.room_changed));
  });
}

Result<void> Pager::reconcile() {
  const Lock lock(impl_->mutex);
  const Status status = impl_->reconcile_locked(lock);
  if (status == Status::ok) return {};
  return fail(status, "accounting", "our count of resident bytes is not the kernel's");
}

bool Pager::evict(ChunkId chunk) {
  Impl& p = *impl_;
  Lock lock(p.mutex);
  const ChunkState& c = p.state(chunk);
  if (c.phase() != ChunkPhase::resident) return false;
  p.release_current(lock, chunk);
  if (c.pins() != 0) return false;
  return p.evict_one(lock, chunk);
}

bool Pager::resident(ChunkId chunk) const {
  const Lock lock(impl_->mutex);
  return impl_->state(chunk).phase() == ChunkPhase::resident;
}

std::string_view Pager::uffd_route() const {
  return name(impl_->uffd.route());
}
bool Pager::kernel_faults_handled() const {
  return impl_->uffd.route() != UffdRoute::user_mode_only;
}
std::string_view Pager::read_engine() const {
  return name(impl_->reader->engine());
}
bool Pager::large_frames() const {
  return impl_->frames.large();
}
std::uint64_t Pager::overhead_bytes() const {
  const Lock lock(impl_->mutex);
  std::uint64_t sum = impl_->staging.bytes();
  for (const auto& region : impl_->regions)
    sum += region->lookahead == nullptr ? 0 : region->lookahead->router->bytes();
  return sum;
}
std::uint64_t Pager::overhead_bytes_for(std::uint32_t largest, std::uint64_t budget) {
  const std::uint64_t run = ChunkPlan::span_bytes(largest);
  return Staging::slots_for(run, budget) * run;
}
OrderReport Pager::order_report() const {
  const Lock lock(impl_->mutex);
  return impl_->policy->order_report();
}
PagerStats& Pager::stats() {
  return impl_->stats;
}

// ---- Shared by the files of this folder

std::optional<Pager::Impl::Shown> Pager::Impl::shown(const void* address,
                                                     std::uint64_t bytes) const {
  const std::uint64_t begin = as_address(address);
  View view;
  if (bytes == 0 || !views.find(begin, view) || bytes > view.end - begin) return std::nullopt;
  return Shown{view.region, view.offset + (begin - view.begin)};
}

void Pager::Impl::restore(const std::vector<View>& cut) {
  for (const View& v : cut) {
    views.add(v);
    uffd.wake(v.begin, v.end - v.begin);
  }
}

Pager::Impl::Place Pager::Impl::locate(ChunkId chunk) const {
  const auto it = std::upper_bound(
      regions.begin(), regions.end(), chunk,
      [](ChunkId id, const std::unique_ptr<Region>& r) { return id < r->first_chunk; });
  Region* region = std::prev(it)->get();
  return {region, chunk - region->first_chunk};
}

void Pager::Impl::replan_for_pins(const Lock& lock) {
  // A plan is O(n): small pins come and go without one.
  const std::uint64_t pinned = budget.pinned;
  const std::uint64_t change =
      pinned > planned_pinned ? pinned - planned_pinned : planned_pinned - pinned;
  if (change > largest_chunk) replan(lock);
}

void Pager::Impl::replan(const Lock&) {
  planned_pinned = budget.pinned;
  std::uint64_t model = 0;
  for (const auto& region : regions)
    model += region->plan().mapped_bytes();
  const std::uint64_t room = budget.limit() - std::min(budget.limit(), budget.pinned);
  const std::uint64_t run = ChunkPlan::span_bytes(largest_chunk);
  std::uint64_t window = run;
  if (config.prefetch_depth != 0) {
    // The chunk being read, one that is ready and one that is being filled in; more of them where
    // they are a small part of what is read anyway (a pass reads the window on top of it).
    const std::uint64_t missing = model - std::min(model, room);
    window = std::clamp(missing / 40, 3 * run, 8 * run);
  }
  policy->set_room(room, std::min(window, room / 2));
  if (window == run && policy->streams_neighbours()) {
    policy->set_room(room, std::min(2 * run, room / 2));
  }
}

void Pager::Impl::add_hold(const Lock&, ChunkId chunk) {
  if (state(chunk).holds++ == 0) budget.pinned += bytes_of(chunk);
}

void Pager::Impl::drop_hold(const Lock&, ChunkId chunk) {
  if (--state(chunk).holds == 0) budget.pinned -= bytes_of(chunk);
}

void Pager::Impl::add_pin(Lock& lock, ChunkId chunk) {
  ChunkState& c = state(chunk);
  if (c.pins() == 0) policy->withdraw(chunk);
  c.pin(lock);
}

void Pager::Impl::drop_pin(Lock& lock, ChunkId chunk) {
  ChunkState& c = state(chunk);
  c.unpin(lock);
  if (c.pins() == 0) policy->candidate(chunk);
}

void Pager::Impl::report(Status status, std::string_view line) {
  // The first of its kind explains the rest; but a bad read, which a program may survive, must not
  // hide that the accounting went wrong later.
  const std::uint64_t bit = 1ULL << static_cast<unsigned>(status);
  if ((reported.fetch_or(bit) & bit) != 0) return;
  if (hook == nullptr) {
    RawLine out;
    out << line;
    out.emit();
    return;
  }
  std::array<char, 1024> text{};
  std::memcpy(text.data(), line.data(), std::min(line.size(), text.size() - 1));
  hook(hook_context, status, text.data());
}

}  // namespace resid
