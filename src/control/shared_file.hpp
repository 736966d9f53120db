#pragma once
// A page of memory that `residctl run` shares, as a file, with the program it started.
//
// `Page` is plain old data of fixed layout whose first members are `magic` and `page_bytes`; what
// changes concurrently in it is a lock-free atomic. It names itself in messages: Page::kWhat.

#include <cstdint>
#include <string>

#include "base/status.hpp"

namespace resid {

// A mapped Page and, for the creator, its file. Not for concurrent use; the page is.
template <class Page>
class SharedFile {
 public:
  // Makes the file in $XDG_RUNTIME_DIR, where that is a writable folder of this user, else in /tmp;
  // mode 0600. Its space is allocated here: no later store to the page can meet a full disk
  // (SIGBUS), and where the folder is a tmpfs the pages are charged to the parent's control group,
  // so that they never count as the child's shmem (I-7). write_failed when it cannot be made.
  static Result<SharedFile> create();
  // As create(), under this very name, which nobody has yet.
  static Result<SharedFile> create_at(const std::string& path);
  // Maps an existing one, which must be a regular file of this user that nobody else can write, of
  // exactly this build's layout. The path comes from the environment and is not trusted: anything
  // else is a failure (no_such_file, unreadable, usage).
  static Result<SharedFile> open(const std::string& path);

  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile();  // unmaps; the creator also removes the file

  Page& page() { return *page_; }
  const Page& page() const { return *page_; }
  const std::string& path() const { return path_; }
  // Gives up removal and unmapping: the preload library keeps its page until the process is gone.
  Page* release();

 private:
  SharedFile() = default;
  static Result<SharedFile> fill(int fd, std::string path);
  void reset() noexcept;
  Page* page_ = nullptr;
  std::string path_;
  bool owner_ = false;  // has the file to remove
};

}  // namespace resid
