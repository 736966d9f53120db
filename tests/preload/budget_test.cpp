// The budget of a run: how much, and whose.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include <gtest/gtest.h>

#include "base/units.hpp"
#include "preload/budget.hpp"

namespace resid::preload {
namespace {

constexpr std::uint64_t kMib = 1024 * 1024;

TEST(ResolveBudget, a_percentage_is_of_the_whole_model) {
  RunConfig config;
  config.ram_is_percent = 1;
  config.ram_percent = 25;
  const auto budget = resolve_budget(config, 100 * kMib, 2 * kMib);
  ASSERT_TRUE(budget);
  EXPECT_EQ(*budget, 25 * kMib);
}

TEST(ResolveBudget, is_whole_pages) {
  RunConfig config;
  config.ram_bytes = 10 * kMib + 5000;
  EXPECT_EQ(*resolve_budget(config, 100 * kMib, kMib), 10 * kMib + kPage);
}

TEST(ResolveBudget, two_of_the_largest_chunks_are_the_least) {
  RunConfig config;
  config.ram_bytes = 4 * kMib;
  EXPECT_TRUE(resolve_budget(config, 100 * kMib, 2 * kMib));
  config.ram_bytes = 4 * kMib - 1;
  const auto budget = resolve_budget(config, 100 * kMib, 2 * kMib);
  ASSERT_FALSE(budget);
  EXPECT_EQ(budget.error().status, Status::budget_too_small);
  EXPECT_EQ(exit_code(budget.error().status), 4);
}

class ClaimBudget : public testing::Test {
 protected:
  // A RunPage is shared memory of a fixed layout, too large for comfort on the stack.
  std::unique_ptr<RunPage> page_ = std::make_unique<RunPage>();
};

TEST_F(ClaimBudget, the_first_takes_it_and_may_take_it_again) {
  EXPECT_TRUE(claim_budget(*page_, ::getpid()));
  EXPECT_TRUE(claim_budget(*page_, ::getpid()));
  EXPECT_EQ(page_->budget_holder.load(), static_cast<std::uint32_t>(::getpid()));
}

TEST_F(ClaimBudget, a_living_holder_keeps_it) {
  page_->budget_holder.store(static_cast<std::uint32_t>(::getppid()));
  const auto claimed = claim_budget(*page_, ::getpid());
  ASSERT_FALSE(claimed);
  EXPECT_EQ(claimed.error().status, Status::budget_taken);
  EXPECT_NE(claimed.error().why.find(std::to_string(::getppid())), std::string::npos);
}

TEST_F(ClaimBudget, a_dead_holder_is_succeeded_and_its_figures_are_void) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  page_->budget_holder.store(static_cast<std::uint32_t>(child));
  page_->stats.resident_bytes.store(5);
  page_->mapped_bytes.store(6);
  EXPECT_TRUE(claim_budget(*page_, ::getpid()));
  EXPECT_EQ(page_->stats.resident_bytes.load(), 0U);
  EXPECT_EQ(page_->mapped_bytes.load(), 0U);
}

TEST_F(ClaimBudget, a_zombie_is_dead) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  page_->budget_holder.store(static_cast<std::uint32_t>(child));
  EXPECT_TRUE(claim_budget(*page_, ::getpid()));
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace resid::preload
