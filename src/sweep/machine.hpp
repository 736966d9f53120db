#pragma once
// What a figure depends on besides the settings: the machine, the disk, the program, the model.

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.hpp"
#include "host/cgroup.hpp"

namespace resid::sweep {

// Kernel, processors, memory, swap, control group limits, huge page setting, multi-generation LRU,
// DAMON, and the disk below `store_folder`. What cannot be found out is null: facts never stop a
// sweep. Roots as for host::, so that tests can make a machine of their own.
nlohmann::ordered_json machine_facts(const std::string& store_folder,
                                     const host::Roots& roots = {});

// The disk and file system that hold `path`.
nlohmann::ordered_json disk_facts(const std::string& path, const host::Roots& roots = {});

// The machine in one line, as far as figures from two machines must not be mixed.
std::string machine_line(const nlohmann::ordered_json& facts);

// {"version":..,"git":..}; git is "unknown" in a build from a source archive.
nlohmann::ordered_json program_version();

// RESIDCTL_* variables, which change what a cell does, as `NAME=value NAME=value`; empty for none.
std::string settings_in_environment();

// The model's files and what identifies them.
struct Subject {
  std::vector<std::string> files;  // absolute
  std::uint64_t bytes = 0;
  std::string fingerprint;  // hexadecimal: sizes, the first and last MiB, and 62 blocks of 64 KiB
                            // between; tells models apart, proves nothing about every byte
};
Result<Subject> examine_model(const std::string& path);

double load_average(const host::Roots& roots = {});
std::string utc_now();

}  // namespace resid::sweep
