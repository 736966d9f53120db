// Arms C, D and E: the pager.

#include <array>

#include "replay/arms.hpp"

namespace resid {
namespace {

constexpr std::array<std::string_view, 6> kArmNames{"A", "B", "C", "D", "E", "OPT"};

class PagerArm final : public Arm {
 public:
  explicit PagerArm(std::unique_ptr<Pager> pager) : pager_(std::move(pager)) {}

  Result<void> map(const Workload& workload) {
    auto region =
        pager_->add_region(workload.fd.get(), workload.path, workload.file, workload.plan);
    if (!region) return tl::unexpected(region.error());
    pager_->declare_sequence(workload.sequence);
    auto view = pager_->map_view(*region, nullptr, workload.plan.mapped_bytes(), 0, 0);
    if (!view) return tl::unexpected(view.error());
    view_ = static_cast<const std::uint8_t*>(*view);
    return {};
  }

  const std::uint8_t* view() const override { return view_; }
  void consumed(std::uint32_t chunk) override { pager_->notify_access(chunk); }
  std::string_view uffd_route() const override { return pager_->uffd_route(); }
  void settle() override { pager_->settle(); }
  std::uint64_t bytes_read() const override { return pager_->stats().bytes_fetched.load(); }

 private:
  std::unique_ptr<Pager> pager_;
  const std::uint8_t* view_ = nullptr;
};

}  // namespace

std::string_view name(ArmKind arm) {
  return kArmNames[static_cast<std::size_t>(arm)];
}

Result<ArmKind> parse_arm(std::string_view text) {
  for (std::size_t i = 0; i < kArmNames.size(); ++i) {
    if (kArmNames[i] == text) return static_cast<ArmKind>(i);
  }
  return fail(Status::usage, "--arm", "unknown arm '" + std::string(text) + "'",
              "give A, B, C, D, E or OPT");
}

Result<std::unique_ptr<Arm>> make_pager_arm(const Workload& workload, PagerConfig config,
                                            PagerStats& stats, FailureHook hook, void* context) {
  config.signal_mode = SignalMode::after_use;
  config.faults_signal_access = false;
  auto pager = Pager::create(config, stats, hook, context);
  if (!pager) return tl::unexpected(pager.error());
  auto arm = std::make_unique<PagerArm>(std::move(*pager));
  if (auto ok = arm->map(workload); !ok) return tl::unexpected(ok.error());
  return arm;
}

}  // namespace resid
