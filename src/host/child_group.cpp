// ChildGroup: the life of the control group that one run gets.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/sys.hpp"
#include "host/cgroup.hpp"
#include "host/group_files.hpp"
#include "host/hierarchy.hpp"
#include "host/kernel_file.hpp"

namespace resid::host {
namespace {

constexpr std::uint64_t kRemovalPatienceNs = 2'000'000'000;
constexpr long kRemovalPauseNs = 10'000'000;
constexpr unsigned kMostGroupsOfOneProcess = 1000;

bool holds_processes(const std::string& folder) {
  auto procs = read_kernel_file(folder + "/cgroup.procs", Status::cgroup_unreadable);
  return procs && *procs && !(*procs)->empty();
}

// Removes an empty group, waiting up to `patience_ns` for exiting processes to leave it. True when
// it is gone.
bool remove_group(const std::string& folder, CgroupVersion version, std::uint64_t patience_ns) {
  const std::uint64_t deadline = now_ns() + patience_ns;
  bool emptied = false;
  for (;;) {
    if (!holds_processes(folder)) {
      // Page cache that the program read stays charged to a removed version 1 group, and keeps the
      // kernel's side of it alive, until it is reclaimed: drop it first. Version 2 hands it to the
      // parent. Harmless where it fails.
      if (version == CgroupVersion::v1 && !std::exchange(emptied, true)) {
        (void)write_kernel_file(folder + "/memory.force_empty", "0");
      }
      if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) return true;
      if (errno != EBUSY) return false;
    }
    if (now_ns() >= deadline) return false;
    const timespec pause{0, kRemovalPauseNs};
    ::nanosleep(&pause, nullptr);
  }
}

Result<Creator> this_process(const Roots& roots) {
  const std::string file = roots.proc + "/self/stat";
  auto text = read_kernel_file(file, Status::system);
  if (!text) return tl::unexpected(text.error());
  const auto start = *text ? parse_start_time(**text) : std::nullopt;
  if (!start) return fail(Status::system, file, "has no start time");
  return Creator{::getpid(), *start};
}

// Makes a folder with a name of its own in `parent`. Returns 0 or errno.
int make_group(const std::string& parent, const Creator& creator, std::string& made) {
  for (unsigned serial = 0; serial < kMostGroupsOfOneProcess; ++serial) {
    made = parent + "/" + group_name(creator, serial);
    if (::mkdir(made.c_str(), 0755) == 0) return 0;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

std::string_view hint(int error) {
  switch (error) {
    case EBUSY:
      return " (it holds processes of its own)";
    case EROFS:
      return " (the control group file system is mounted read-only here)";
    default:
      return "";
  }
}

}  // namespace

Result<ChildGroup> ChildGroup::create(const MemoryCgroup& self, const Roots& roots) {
  if (self.version == CgroupVersion::none) {
    return fail(Status::cgroup_denied, "control group",
                "no hierarchy with the memory controller is mounted");
  }
  auto creator = this_process(roots);
  if (!creator) return tl::unexpected(creator.error());
  auto places = places_for_child(self);
  if (!places) return tl::unexpected(places.error());
  std::string reasons;
  if (places->empty()) {
    reasons = self.path + ": it holds processes of its own, and its parent is not visible";
  }
  for (const Place& place : *places) {
    int error = self.version == CgroupVersion::v2 ? delegate_memory(place.folder) : 0;
    ChildGroup group;
    if (error == 0) error = make_group(place.folder, *creator, group.path_);
    if (error != 0) {
      group.path_.clear();
      if (!reasons.empty()) reasons += "; ";
      reasons += place.folder + ": " + std::generic_category().message(error);
      reasons += hint(error);
      continue;
    }
    // From here on the destructor of `group` removes the folder when something fails.
    group.version_ = self.version;
    group.ceiling_ = place.ceiling;
    auto barrier = raise_swap_barrier(group.path_, group.version_);
    if (!barrier) return tl::unexpected(barrier.error());
    group.swap_barrier_ = *barrier;
    if (group.ceiling_ != kNoLimit) {
      if (auto limited = group.set_limit(kNoLimit); !limited) {
        return tl::unexpected(limited.error());
      }
    }
    // Opened here, because since Linux 5.16 the right to move a process is that of the opener.
    const std::string procs = group.path_ + "/cgroup.procs";
    group.procs_.reset(::open(procs.c_str(), O_WRONLY | O_CLOEXEC));
    if (!group.procs_) return fail_errno(Status::cgroup_denied, procs, errno);
    return group;
  }
  return fail(Status::cgroup_denied, "control group", std::move(reasons));
}

ChildGroup::ChildGroup(ChildGroup&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      version_(other.version_),
      swap_barrier_(other.swap_barrier_),
      ceiling_(other.ceiling_),
      procs_(std::move(other.procs_)) {}

ChildGroup& ChildGroup::operator=(ChildGroup&& other) noexcept {
  if (this != &other) {
    ChildGroup old(std::move(*this));
    path_ = std::exchange(other.path_, {});
    version_ = other.version_;
    swap_barrier_ = other.swap_barrier_;
    ceiling_ = other.ceiling_;
    procs_ = std::move(other.procs_);
  }
  return *this;
}

ChildGroup::~ChildGroup() {
  procs_.reset();
  if (!path_.empty()) remove_group(path_, version_, kRemovalPatienceNs);
}

int ChildGroup::enter_self() const {
  // "0" is the writing process, in both versions.
  return sys::write(procs_.get(), "0", 1) == 1 ? 0 : errno;
}

Result<void> ChildGroup::set_limit(std::uint64_t bytes) {
  return write_limit(path_, version_, std::min(bytes, ceiling_));
}

Result<CgroupFigures> ChildGroup::figures() const {
  return read_figures(path_, version_);
}

int sweep_stale_groups(const MemoryCgroup& self, const Roots& roots) {
  if (self.version == CgroupVersion::none) return 0;
  int removed = 0;
  // Wherever create() of a process of this group, or of one beside it, may have put one.
  for (const std::string& parent : lineage(self.path, self.mount)) {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(parent.c_str()), ::closedir);
    if (!folder) continue;
    std::vector<std::string> stale;
    while (const dirent* entry = ::readdir(folder.get())) {
      const auto creator = parse_group_name(entry->d_name);
      if (creator && !may_be_alive(*creator, roots)) stale.emplace_back(entry->d_name);
    }
    // A creator in another pid namespace that shares this folder looks dead too. Its group is in
    // use as soon as it holds a process, and then rmdir refuses.
    for (const std::string& name : stale) {
      if (remove_group(parent + "/" + name, self.version, 0)) ++removed;
    }
  }
  return removed;
}

}  // namespace resid::host
