#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <iterator>

#include "net/rendezvous/ledger.h"
#include "unit/net/rendezvous_support.h"

namespace farad::net::test {
namespace {

using base::Code;
using meeting::Note;

class RendezvousFile : public ::testing::Test {
 protected:
  std::unique_ptr<Joiner> start(Member self, int size, Joiner::Options options = {}) {
    return std::make_unique<Joiner>("file://" + path_, std::move(self), size, options);
  }
  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    ::chmod(path_.c_str(), 0600);
  }

  /// Sits down and notes it, as a worker does that then waits.
  static bool sit(Ledger& ledger, const Member& self, int size) {
    std::vector<Note> notes;
    bool taken = false;
    if (!ledger.take_pen(Ledger::Pen::Write).ok()) return false;
    PenHold hold(ledger);
    return ledger.read(notes).ok() && ledger.take_chair(self.rank, taken).ok() && taken &&
           ledger.append({.kind = Note::Kind::Came, .member = self, .size = size}).ok();
  }

  /// The same in a process that is then killed. Returns when it is gone.
  void sit_and_be_killed(const Member& self, int size, bool with_pen = false) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Ledger ledger(path_, {});
      bool good = sit(ledger, self, size);
      if (with_pen) good = good && ledger.take_pen(Ledger::Pen::Write).ok();
      const ssize_t written = ::write(ready[1], good ? "y" : "n", 1);
      while (written == 1) ::pause();
      ::_exit(1);
    }
    char answer = 0;
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.file("meeting");
};

TEST_F(RendezvousFile, OnlyTheUserMayReadAndWriteIt) {
  Ledger ledger(path_, {});
  ASSERT_TRUE(sit(ledger, member(0), 2));
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(RendezvousFile, WhatAKilledJobLeftIsCleared) {
  sit_and_be_killed(member(0, "former"), 7);
  ASSERT_FALSE(content().empty());
  auto first = start(member(0), 2);
  auto second = start(member(1), 2);
  EXPECT_TRUE(first->status().ok()) << first->status().message();
  EXPECT_TRUE(second->status().ok()) << second->status().message();
  EXPECT_FALSE(first->rejoined());
}

TEST_F(RendezvousFile, WhatAJobWithAnotherSecretLeftIsClearedToo) {
  sit_and_be_killed(member(0, "former"), 7);
  EXPECT_TRUE(start(member(0), 1, {.secret = "new"})->status().ok());
}

TEST_F(RendezvousFile, AKilledMemberIsMissingAndCanBeStartedAgain) {
  Ledger other(path_, {});
  ASSERT_TRUE(sit(other, member(1), 3));
  sit_and_be_killed(member(0, "trainer"), 3);
  // All three have come now, but not all of them are alive.
  auto third = start(member(2), 3, {.timeout = 300ms});
  expect_failure(*third, Code::Timeout, {"missing: rank 0 (\"trainer\", which came and left)"});

  auto again = start(member(0, "trainer"), 3);
  third = start(member(2), 3);
  EXPECT_TRUE(again->status().ok()) << again->status().message();
  EXPECT_TRUE(third->status().ok()) << third->status().message();
}

TEST_F(RendezvousFile, ADeathWithThePenInHandHoldsNobodyUp) {
  sit_and_be_killed(member(0), 1, true);
  EXPECT_TRUE(start(member(0), 1)->status().ok());
}

TEST_F(RendezvousFile, AStoppedPenHolderIsATimeoutThatSaysSo) {
  Ledger holder(path_, {});
  ASSERT_TRUE(holder.take_pen(Ledger::Pen::Write).ok());
  expect_failure(*start(member(0), 1, {.timeout = 100ms}), Code::Timeout, {path_, "locked by another worker"});
}

TEST_F(RendezvousFile, AHalfWrittenNoteIsOverwritten) {
  Ledger other(path_, {});
  ASSERT_TRUE(sit(other, member(1), 2));
  const auto whole = content();
  for (const size_t kept : {size_t{1}, size_t{4}, size_t{20}}) {
    write(whole + whole.substr(19, kept));  // The first line has 19 bytes.
    std::vector<Note> notes;
    ASSERT_TRUE(other.take_pen(Ledger::Pen::Write).ok());
    PenHold hold(other);
    other.rewind();
    ASSERT_TRUE(other.read(notes).ok());
    EXPECT_EQ(notes.size(), 1u);
    ASSERT_TRUE(other.append({.kind = Note::Kind::Sealed}).ok());
    other.rewind();
    ASSERT_TRUE(other.read(notes).ok());
    EXPECT_EQ(notes.size(), 2u);
  }
}

TEST_F(RendezvousFile, AnEmptyFileIsAsGoodAsNone) {
  write("");
  EXPECT_TRUE(start(member(0), 1)->status().ok());
}

TEST_F(RendezvousFile, AForeignFileIsLeftAlone) {
  for (const std::string& text :
       {std::string("my thesis\n"), std::string("farad rendezvous 2\n"), std::string(9, '\0')}) {
    write(text);
    expect_failure(*start(member(0), 1), Code::Protocol, {"is not a rendezvous file"});
    EXPECT_EQ(content(), text);
  }
}

TEST_F(RendezvousFile, AFileThatOthersCanWriteIsDenied) {
  write("");
  ::chmod(path_.c_str(), 0666);
  expect_failure(*start(member(0), 1), Code::Denied, {"can be written by other users"});
}

TEST_F(RendezvousFile, ALinkIsNotFollowed) {
  const auto precious = directory_.file("precious");
  std::ofstream(precious) << "";
  std::filesystem::create_symlink(precious, path_);
  expect_failure(*start(member(0), 1), Code::Invalid, {"cannot open"});
}

TEST_F(RendezvousFile, ADirectoryThatIsNotThereIsNamed) {
  Joiner joiner("file://" + directory_.file("none/meeting"), member(0), 1);
  expect_failure(joiner, Code::Invalid, {"none/meeting", "No such file"});
}

TEST_F(RendezvousFile, ANoteWithAChangedByteIsDenied) {
  const Secret secret("s");
  Ledger other(path_, secret);
  ASSERT_TRUE(sit(other, member(1, "honest"), 2));
  auto text = content();
  text[text.find("honest")] = 'H';
  write(text);
  expect_failure(*start(member(0), 2, {.secret = "s"}), Code::Denied, {"another secret"});
}

TEST_F(RendezvousFile, RemovingItUnderThemIsAnErrorNotAHang) {
  Ledger seated(path_, {});
  ASSERT_TRUE(sit(seated, member(0), 2));
  std::filesystem::remove(path_);
  EXPECT_EQ(seated.take_pen(Ledger::Pen::Read).code(), Code::Invalid);
}

TEST_F(RendezvousFile, NothingIsLeftWhetherJoinsSucceedOrFail) {
  for (auto& joiner : start_group("file://" + path_, 4)) EXPECT_TRUE(joiner->status().ok());
  EXPECT_TRUE(directory_.empty());
  expect_failure(*start(member(0), 2, {.timeout = 50ms}), Code::Timeout, {"rank 1"});
  EXPECT_TRUE(directory_.empty());
  expect_failure(*start(member(3), 2, {.timeout = 50ms}), Code::Invalid, {"out of range"});
  EXPECT_TRUE(directory_.empty());
}

}  // namespace
}  // namespace farad::net::test
