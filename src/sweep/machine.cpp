#include "sweep/machine.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <memory>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "host/hierarchy.hpp"
#include "host/kernel_file.hpp"
#include "host/memory.hpp"
#include "model/model.hpp"
#include "sweep/settings.hpp"

namespace resid::sweep {
namespace {

using Json = nlohmann::ordered_json;

// A kernel file's text without the newline; null where there is none.
Json line_of(const std::string& path) {
  auto text = host::read_kernel_file(path, Status::unreadable);
  if (!text || !*text) return nullptr;
  std::string line = **text;
  while (!line.empty() && (line.back() == '\n' || line.back() == ' '))
    line.pop_back();
  return line;
}

// The word in brackets of `always [madvise] never`; the whole text where none is.
Json chosen_of(const std::string& path) {
  Json text = line_of(path);
  if (!text.is_string()) return text;
  const auto all = text.get<std::string>();
  const std::size_t open = all.find('[');
  const std::size_t close = all.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return text;
  return all.substr(open + 1, close - open - 1);
}

Json limit_json(std::uint64_t bytes) {
  return bytes == host::kNoLimit ? Json("none") : Json(bytes);
}

Json processor_model(const host::Roots& roots) {
  auto text = host::read_kernel_file(roots.proc + "/cpuinfo", Status::unreadable);
  if (!text || !*text) return nullptr;
  const std::size_t at = (*text)->find("model name");
  if (at == std::string::npos) return nullptr;
  const std::size_t colon = (*text)->find(": ", at);
  const std::size_t end = (*text)->find('\n', at);
  if (colon == std::string::npos || end == std::string::npos || colon > end) return nullptr;
  return (*text)->substr(colon + 2, end - colon - 2);
}

Json usable_processors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return nullptr;
  return CPU_COUNT(&set);
}

Json memory_json(const host::Roots& roots) {
  Json out;
  const auto memory = host::memory_facts(roots);
  out["total_bytes"] = memory ? Json(memory->total) : Json(nullptr);
  out["available_bytes"] = memory ? Json(memory->available) : Json(nullptr);
  out["swap_total_bytes"] = memory ? Json(memory->swap_total) : Json(nullptr);
  const auto group = host::memory_cgroup(roots);
  const bool known = group && group->version != host::CgroupVersion::none;
  out["control_group"] = {
      {"version", !known ? Json(nullptr) : Json(group->version == host::CgroupVersion::v1 ? 1 : 2)},
      {"limit_bytes", known ? limit_json(group->limit) : Json(nullptr)},
      {"swap_limit_bytes", known ? limit_json(group->swap_limit) : Json(nullptr)}};
  return out;
}

// Threads named kdamond.N: DAMON at work, which may reclaim cold page cache by itself.
Json damon_json(const host::Roots& roots) {
  int threads = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(roots.proc.c_str()), ::closedir);
  if (!folder) return nullptr;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const Json comm = line_of(roots.proc + "/" + entry->d_name + "/comm");
    if (comm.is_string() && comm.get<std::string>().starts_with("kdamond")) ++threads;
  }
  struct stat st {};
  const bool there = ::stat((roots.sys + "/kernel/mm/damon").c_str(), &st) == 0;
  return {{"in_kernel", there || threads > 0}, {"threads", threads}};
}

bool holds(const std::string& mount, const std::string& path) {
  return mount == "/" || path == mount ||
         (path.starts_with(mount) && path.size() > mount.size() && path[mount.size()] == '/');
}

std::string real_path(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? std::string(resolved) : path;
}

// One block into the running hash text.
Result<void> add_block(int fd, const std::string& path, std::uint64_t offset, std::size_t bytes,
                       std::string& into) {
  std::string block(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n =
        ::pread(fd, block.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(Status::read_failed, path, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  block.resize(done);
  into += text_hash(block);
  return {};
}

Result<std::uint64_t> add_file(const std::string& path, std::string& into) {
  constexpr std::uint64_t kEnd = 1U << 20;
  constexpr std::size_t kMiddle = 64U << 10;
  constexpr std::uint64_t kBlocks = 62;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    return fail_errno(errno == ENOENT ? Status::no_such_file : Status::unreadable, path, errno);
  }
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(Status::unreadable, path, errno);
  if (!S_ISREG(st.st_mode)) return fail(Status::not_a_file, path, "is no regular file");
  if (st.st_size == 0) return fail(Status::empty_file, path, "has no bytes");
  const auto bytes = static_cast<std::uint64_t>(st.st_size);
  into += fmt::format("{}:", bytes);
  if (auto ok = add_block(fd.get(), path, 0, kEnd, into); !ok) return tl::unexpected(ok.error());
  for (std::uint64_t i = 1; i <= kBlocks; ++i) {
    const std::uint64_t offset = bytes / (kBlocks + 1) * i;
    if (auto ok = add_block(fd.get(), path, offset, kMiddle, into); !ok) {
      return tl::unexpected(ok.error());
    }
  }
  if (auto ok = add_block(fd.get(), path, bytes - std::min(bytes, kEnd), kEnd, into); !ok) {
    return tl::unexpected(ok.error());
  }
  return bytes;
}

}  // namespace

Json disk_facts(const std::string& path, const host::Roots& roots) {
  Json out{{"device", nullptr},           {"name", nullptr},
           {"rotational", nullptr},       {"scheduler", nullptr},
           {"read_ahead_bytes", nullptr}, {"model", nullptr},
           {"filesystem", nullptr},       {"mounted_at", nullptr}};
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return out;
  const std::string number = fmt::format("{}:{}", major(st.st_dev), minor(st.st_dev));
  out["device"] = number;
  const std::string device = real_path(roots.sys + "/dev/block/" + number);
  struct stat found {};
  if (::stat(device.c_str(), &found) == 0) {
    out["name"] = device.substr(device.rfind('/') + 1);
    // A partition has no queue of its own: its disk is the folder around it.
    const bool whole = ::stat((device + "/queue").c_str(), &found) == 0;
    const std::string disk = whole ? device : device.substr(0, device.rfind('/'));
    const Json rotational = line_of(disk + "/queue/rotational");
    if (rotational.is_string()) out["rotational"] = rotational == "1";
    out["scheduler"] = chosen_of(disk + "/queue/scheduler");
    const Json ahead = line_of(disk + "/queue/read_ahead_kb");
    const auto kib =
        ahead.is_string() ? host::parse_number(ahead.get<std::string>()) : std::nullopt;
    if (kib) out["read_ahead_bytes"] = *kib * 1024;
    out["model"] = line_of(disk + "/device/model");
  }
  auto text = host::read_kernel_file(roots.proc + "/self/mountinfo", Status::unreadable);
  if (!text || !*text) return out;
  auto mounts = host::parse_mountinfo(**text, roots.proc + "/self/mountinfo");
  if (!mounts) return out;
  const std::string real = real_path(path);
  std::size_t longest = 0;
  for (const host::Mount& mount : *mounts) {
    // A later mount at the same place covers the earlier one.
    if (!holds(mount.point, real) || mount.point.size() < longest) continue;
    longest = mount.point.size();
    out["filesystem"] = mount.type;
    out["mounted_at"] = mount.point;
  }
  return out;
}

Json machine_facts(const std::string& store_folder, const host::Roots& roots) {
  utsname names{};
  ::uname(&names);
  Json out;
  out["kernel"] = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
  out["processor"] = {{"model", processor_model(roots)}, {"usable", usable_processors()}};
  out["memory"] = memory_json(roots);
  const std::string thp = roots.sys + "/kernel/mm/transparent_hugepage";
  out["huge_pages"] = {{"enabled", chosen_of(thp + "/enabled")},
                       {"shmem", chosen_of(thp + "/shmem_enabled")}};
  out["mglru"] = line_of(roots.sys + "/kernel/mm/lru_gen/enabled");
  out["damon"] = damon_json(roots);
  out["disk"] = disk_facts(store_folder, roots);
  out["load"] = load_average(roots);
  return out;
}

std::string machine_line(const Json& facts) {
  const Json& processor = facts["processor"];
  return fmt::format("{}; {} x {}", facts["kernel"].get<std::string>(), processor["usable"].dump(),
                     processor["model"].is_string() ? processor["model"].get<std::string>()
                                                    : std::string("unknown processor"));
}

Json program_version() {
  return {{"version", RESID_VERSION}, {"git", RESID_GIT}};
}

std::string settings_in_environment() {
  // Places of files, which change no figure.
  constexpr std::array<std::string_view, 3> kPlaces{
      "RESIDCTL_CACHE=", "RESIDCTL_NPM_TARBALLS=", "RESIDCTL_BENCH_DIR="};
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("RESIDCTL_")) continue;
    if (std::any_of(kPlaces.begin(), kPlaces.end(),
                    [&](std::string_view place) { return text.starts_with(place); })) {
      continue;
    }
    found.emplace_back(text);
  }
  std::sort(found.begin(), found.end());
  std::string out;
  for (const std::string& entry : found)
    out += (out.empty() ? "" : " ") + entry;
  return out;
}

Result<Subject> examine_model(const std::string& path) {
  Subject subject;
  std::string text;
  // A model in parts is named by any one of them; any other file is a store as it is.
  if (const auto model = open_model(path)) {
    for (const ModelFile& file : model->files)
      subject.files.push_back(real_path(file.path));
  } else {
    subject.files.push_back(real_path(path));
  }
  for (const std::string& file : subject.files) {
    auto bytes = add_file(file, text);
    if (!bytes) return tl::unexpected(bytes.error());
    subject.bytes += *bytes;
  }
  subject.fingerprint = text_hash(text);
  return subject;
}

double load_average(const host::Roots& roots) {
  const Json line = line_of(roots.proc + "/loadavg");
  return line.is_string() ? std::strtod(line.get<std::string>().c_str(), nullptr) : 0;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace resid::sweep
