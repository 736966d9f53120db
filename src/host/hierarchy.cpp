#include "host/hierarchy.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "host/kernel_file.hpp"

namespace resid::host {
namespace {

// Takes the text up to the next `mark` off the front of `rest`; nullopt when there is none.
std::optional<std::string_view> take(std::string_view& rest, char mark) {
  const std::size_t end = rest.find(mark);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view token = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return token;
}

// mountinfo writes blank, tab, newline and backslash as a backslash and three octal digits.
std::string unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] <= '3' && octal(i + 1) &&
        octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<Mount> parse_mount(std::string_view line) {
  // id parent major:minor root point options [optional ...] - type source super-options
  Mount mount;
  for (int i = 0; i < 3; ++i) {
    if (!take(line, ' ')) return std::nullopt;
  }
  const auto root = take(line, ' ');
  const auto point = root ? take(line, ' ') : std::nullopt;
  const auto options = point ? take(line, ' ') : std::nullopt;
  if (!options || root->empty() || point->empty() || point->front() != '/') return std::nullopt;
  for (;;) {
    const auto token = take(line, ' ');
    if (!token) return std::nullopt;
    if (*token == "-") break;
  }
  const auto type = take(line, ' ');
  const auto source = type ? take(line, ' ') : std::nullopt;
  if (!source || type->empty()) return std::nullopt;
  mount.root = unescape(*root);
  mount.point = unescape(*point);
  mount.type = *type;
  mount.super_options = line;
  return mount;
}

template <class T, class Parse>
Result<std::vector<T>> parse_lines(std::string_view text, const std::string& file, Parse parse) {
  std::vector<T> out;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty()) continue;
    std::optional<T> item = parse(line);
    if (!item) {
      return fail(Status::cgroup_unreadable, file,
                  "line " + std::to_string(number) + " is not of the kernel's form");
    }
    out.push_back(std::move(*item));
  }
  return out;
}

bool has_parent_component(std::string_view path) {
  return path == "/.." || path.find("/../") != std::string_view::npos ||
         (path.size() >= 3 && path.substr(path.size() - 3) == "/..");
}

bool is_folder(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

std::string under_roots(const std::string& point, const Roots& roots) {
  if (point == "/sys" || point.rfind("/sys/", 0) == 0) return roots.sys + point.substr(4);
  return point;
}

bool lists_us(const std::string& folder) {
  const auto procs = read_kernel_file(folder + "/cgroup.procs", Status::cgroup_unreadable);
  return procs && *procs && has_word(**procs, std::to_string(::getpid()));
}

// Of several mounts of one hierarchy the one that shows most ancestors of the group is taken, since
// the limits of all of them apply.
Result<GroupFolder> folder_in(const std::vector<Mount>& mounts, CgroupVersion version,
                              const std::string& group, const Roots& roots) {
  GroupFolder best;
  GroupFolder listing;  // second best: a mount whose top folder lists this process
  std::string best_rest;
  bool mounted = false;
  for (const Mount& mount : mounts) {
    const bool fits = version == CgroupVersion::v2
                          ? mount.type == "cgroup2"
                          : mount.type == "cgroup" && has_word(mount.super_options, "memory", ',');
    if (!fits) continue;
    mounted = true;
    const std::string point = under_roots(mount.point, roots);
    std::string rest;
    if (below(mount.root, group, rest) && is_folder(point + rest)) {
      if (best.version == CgroupVersion::none || rest.size() >= best_rest.size()) {
        best = {version, point, point + rest};
        best_rest = rest;
      }
    } else if (lists_us(point)) {
      listing = {version, point, point};
    }
  }
  if (best.version != CgroupVersion::none) return best;
  if (listing.version != CgroupVersion::none) return listing;
  if (!mounted) return GroupFolder{};
  return fail(Status::cgroup_unreadable, roots.proc + "/self/cgroup",
              "the group " + group + " is not below any mounted control group folder");
}

}  // namespace

Result<std::vector<Mount>> parse_mountinfo(std::string_view text, const std::string& file) {
  return parse_lines<Mount>(text, file, parse_mount);
}

Result<std::vector<Membership>> parse_memberships(std::string_view text, const std::string& file) {
  return parse_lines<Membership>(
      text, file, [](std::string_view line) -> std::optional<Membership> {
        // The path may hold colons; the controllers cannot.
        const auto id = take(line, ':');
        const auto controllers = id ? take(line, ':') : std::nullopt;
        if (!controllers || !parse_number(*id) || line.empty() || line.front() != '/') {
          return std::nullopt;
        }
        return Membership{std::string(*controllers), std::string(line)};
      });
}

bool below(std::string_view root, std::string_view group, std::string& rest) {
  std::string_view tail;
  if (group.empty() || group.front() != '/') return false;
  if (root == "/") {
    tail = group == "/" ? std::string_view{} : group;
  } else if (group == root) {
    tail = {};
  } else if (group.size() > root.size() && group.substr(0, root.size()) == root &&
             group[root.size()] == '/') {
    tail = group.substr(root.size());
  } else {
    return false;
  }
  if (has_parent_component(tail)) return false;
  rest = tail;
  return true;
}

Result<GroupFolder> find_group(const Roots& roots) {
  const std::string membership_file = roots.proc + "/self/cgroup";
  auto text = read_kernel_file(membership_file, Status::cgroup_unreadable);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return GroupFolder{};  // a kernel without control groups
  auto memberships = parse_memberships(**text, membership_file);
  if (!memberships) return tl::unexpected(memberships.error());

  const std::string mount_file = roots.proc + "/self/mountinfo";
  text = read_kernel_file(mount_file, Status::cgroup_unreadable);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return fail(Status::cgroup_unreadable, mount_file, "there is no such file");
  auto mounts = parse_mountinfo(**text, mount_file);
  if (!mounts) return tl::unexpected(mounts.error());

  // A controller is in one hierarchy only: version 1 has it when a line there names it (cgroups(7),
  // "hybrid"), and then version 2 does not.
  for (const Membership& m : *memberships) {
    if (has_word(m.controllers, "memory", ',')) {
      return folder_in(*mounts, CgroupVersion::v1, m.path, roots);
    }
  }
  for (const Membership& m : *memberships) {
    if (m.controllers.empty()) return folder_in(*mounts, CgroupVersion::v2, m.path, roots);
  }
  return GroupFolder{};
}

std::vector<std::string> lineage(const std::string& path, const std::string& mount) {
  std::vector<std::string> out;
  std::string at = path;
  for (;;) {
    out.push_back(at);
    if (at.size() <= mount.size()) return out;
    const std::size_t slash = at.rfind('/');
    if (slash == std::string::npos || slash < mount.size()) return out;
    at.resize(slash);
  }
}

}  // namespace resid::host
