// The claims of ranks before they begin: equal claims agree, differences are named.
#include "collectives/transport/failure/claims.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "collectives/base/build_id.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/transport/failure/waited_time.h"

namespace lockstep {
namespace {

Claims training(const std::string& rate) {
  return {
      {std::string(command_claim), "train ddp"}, {"--lr", rate}, {"--save", ""}, {"--seed", "1"}};
}

TEST(Claims, SurviveTheirJourney) {
  const Claims back = unpacked(packed(training("0.001")));
  ASSERT_EQ(back.size(), 4U);
  EXPECT_EQ(back[1].name, "--lr");
  EXPECT_EQ(back[1].value, "0.001");
  EXPECT_EQ(back[2].value, "");
  EXPECT_EQ(back[3].value, "1");
  EXPECT_TRUE(unpacked("").empty());
}

TEST(Claims, HaveTheirOwnDigest) {
  EXPECT_EQ(digest(training("0.001")), digest(training("0.001")));
  EXPECT_NE(digest(training("0.001")), digest(training("0.003")));
  EXPECT_NE(digest({{"ab", "c"}}), digest({{"a", "bc"}}));
  EXPECT_NE(digest({{"a", ""}}), digest({}));
}

TEST(Claims, NameRanksAndValues) {
  const Claims ranks[] = {training("0.001"), training("0.003"), training("0.001"),
                          training("0.001")};
  EXPECT_EQ(disagreement(ranks), "--lr is 0.001 on ranks 0, 2-3 and 0.003 on rank 1");
  EXPECT_EQ(disagreement(std::span(ranks).subspan(2)), "");
}

TEST(Claims, NameWhatOnlyOneRankSays) {
  Claims more = training("0.001");
  more.push_back({"OMP_NUM_THREADS", ""});
  const Claims ranks[] = {training("0.001"), more};
  EXPECT_EQ(disagreement(ranks), "OMP_NUM_THREADS is not set on rank 0 and '' on rank 1");
}

TEST(Claims, NameOnlyTheCommandIfThatDiffers) {
  Claims other = training("0.003");
  other[0].value = "train fsdp";
  const Claims ranks[] = {training("0.001"), other};
  EXPECT_EQ(disagreement(ranks), "the command is train ddp on rank 0 and train fsdp on rank 1");
}

TEST(Claims, CountWhatTheyDoNotName) {
  Claims one, other;
  for (int i = 0; i < 9; ++i)
    one.push_back({std::to_string(i), "1"}), other.push_back({std::to_string(i), "2"});
  const Claims ranks[] = {one, other};
  const std::string text = disagreement(ranks);
  EXPECT_NE(text.find("5 is 1 on rank 0 and 2 on rank 1; and 3 more"), std::string::npos) << text;
}

TEST(Claims, AreWhatAFileContainsNotItsName) {
  const std::string folder = testing::TempDir();
  write_file(folder + "claims_a", "text");
  write_file(folder + "claims_b", "text");
  write_file(folder + "claims_c", "texT");
  EXPECT_EQ(contents_of(folder + "claims_a"), contents_of(folder + "claims_b"));
  EXPECT_NE(contents_of(folder + "claims_a"), contents_of(folder + "claims_c"));
  EXPECT_EQ(contents_of(""), "none");
  for (const char* name : {"claims_a", "claims_b", "claims_c"})
    std::remove((folder + name).c_str());
  EXPECT_THROW(static_cast<void>(contents_of(folder + "claims_a")), Error);
}

TEST(Refusals, NameRanksUnlessAllSayTheSame) {
  const std::string some[] = {"", "--bogus", "", "--bogus"}, all[] = {"--bogus", "--bogus"};
  EXPECT_EQ(refusals(some), "ranks 1, 3 refuse their input: --bogus");
  EXPECT_EQ(refusals(std::span(some).first(3)), "rank 1 refuses its input: --bogus");
  EXPECT_EQ(refusals(all), "--bogus");
  EXPECT_EQ(refusals(std::span(some).first(1)), "");
}

TEST(BuildId, IsThatOfThisProgram) {
  EXPECT_GE(build_id().size(), 16U);
  EXPECT_EQ(build_id().find_first_not_of("0123456789abcdef"), std::string::npos) << build_id();
}

// A process that was stopped for a minute has not waited for a minute.
TEST(WaitedTime, DoesNotCountTimeInWhichTheProcessWasStopped) {
  using std::chrono::milliseconds;
  WaitedTime waited;
  auto now = WaitedTime::Clock::now();
  waited.look(now);
  const double before = waited.seconds();
  EXPECT_NEAR(waited.look(now += milliseconds(100)) - before, 0.1, 1e-9);
  EXPECT_NEAR(waited.look(now += milliseconds(200)) - before, 0.3, 1e-9);
  EXPECT_NEAR(waited.look(now += std::chrono::minutes(1)) - before, 0.55, 1e-9);
  EXPECT_NEAR(waited.look(now += milliseconds(100)) - before, 0.65, 1e-9);
}

}  // namespace
}  // namespace lockstep
