#pragma once
// Adding to a usage history on disk.
//
//   U-1  Whatever ends us at whatever moment, the name holds what it held before or all of what it
//        was to hold: the new content is written to a file without a name, synced, and renamed over
//        the old one.
//   U-2  Two runs that add at once both count: reading, adding and replacing happen under a lock
//        (`.lock` beside the file, which stays).
//   U-3  What cannot be used as this model's history is never overwritten: it is renamed to
//        `.damaged` (or `.damaged-2` and so on), and a new history begun.

#include <chrono>
#include <optional>
#include <string>

#include "base/status.hpp"
#include "expert/usage_history.hpp"

namespace resid {

struct UsageAdded {
  // What stood there and could not be used, and where it is now (U-3).
  std::optional<Failure> set_aside;
};

// Adds what was counted to the history at `path`, which is made where there is none. Waits for the
// lock for `patience`. Statuses: write_failed, unreadable, system (the lock is held for longer).
Result<UsageAdded> add_usage(const std::string& path, const UsageHistory& counted,
                             std::chrono::milliseconds patience);

// $XDG_STATE_HOME/residctl/experts/, else below $HOME/.local/state; with the slash. usage when
// neither is known. Makes nothing.
Result<std::string> usage_folder();
// Makes that folder and those above it, for this user alone.
Result<void> make_usage_folder(const std::string& folder);

}  // namespace resid
