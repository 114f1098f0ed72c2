// `farad doctor` on this machine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/environment.h"
#include "process/command/farad_command.h"

namespace farad::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Answer {
  int code;
  std::string text;
};

Answer doctor(std::vector<std::string> options, std::map<std::string, std::string> environment = {}) {
  options.insert(options.begin(), "doctor");
  Command command(farad_command(options), {.environment = std::move(environment)});
  const int code = command.finish();
  return {code, command.out()};
}

TEST(Doctor, SaysWhatIsThere) {
  const auto [code, text] = doctor({});
  EXPECT_EQ(code, 0) << text;
  for (const char* part : {"farad ", "compiler", "kernel", "glibc", "built with", "BLAS", "cores", "memory",
                           "open files", "shm", "tcp", "/dev/shm is not needed", "secret"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  for (const auto& row : base::variables()) EXPECT_THAT(text, HasSubstr(row.name));
}

TEST(Doctor, MalformedVariableIsBrokenAndTellsHowToMendIt) {
  const auto [code, text] = doctor({}, {{"FARAD_LOST_AFTER_MS", "soon"}});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("FARAD_LOST_AFTER_MS: expected a whole number of milliseconds"));
}

TEST(Doctor, NeverPrintsTheSecret) {
  const std::map<std::string, std::string> environment{{"FARAD_SECRET", "open-sesame-open-sesame"}};
  for (const auto& options : std::vector<std::vector<std::string>>{{}, {"--json"}}) {
    const auto [code, text] = doctor(options, environment);
    EXPECT_EQ(code, 0);
    EXPECT_THAT(text, HasSubstr("from FARAD_SECRET"));
    EXPECT_THAT(text, Not(HasSubstr("sesame")));
  }
}

TEST(Doctor, MissingSecretFileIsBroken) {
  const auto [code, text] = doctor({}, {{"FARAD_SECRET_FILE", "/no/such/file"}});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("FARAD_SECRET_FILE /no/such/file: No such file or directory"));
}

TEST(Doctor, SecretFileThatWorkersRefuseIsBroken) {
  const auto path = std::filesystem::path(::testing::TempDir()) / ("farad-secret-" + std::to_string(::getpid()));
  std::ofstream(path) << "0123456789abcdef0123456789abcdef";
  ::chmod(path.c_str(), 0644);
  const auto open = doctor({}, {{"FARAD_SECRET_FILE", path.string()}});
  EXPECT_EQ(open.code, 1);
  EXPECT_THAT(open.text, HasSubstr("chmod 600 " + path.string()));
  ::chmod(path.c_str(), 0600);
  EXPECT_THAT(doctor({}, {{"FARAD_SECRET_FILE", path.string()}}).text, Not(HasSubstr("chmod")));
  std::ofstream(path) << "\n";
  const auto empty = doctor({}, {{"FARAD_SECRET_FILE", path.string()}});
  EXPECT_EQ(empty.code, 1);
  EXPECT_THAT(empty.text, HasSubstr("is empty"));
  std::filesystem::remove(path);
}

TEST(Doctor, FewOpenFilesAreWarnedOf) {
  Command command({"sh", "-c", "ulimit -n 256; exec " FARAD_COMMAND " doctor"});
  EXPECT_EQ(command.finish(), 0);
  EXPECT_THAT(command.out(), HasSubstr("raise it: ulimit -n 256"));
}

TEST(Doctor, JsonIsForPrograms) {
  const auto healthy = doctor({"--json"});
  EXPECT_EQ(healthy.code, 0);
  EXPECT_THAT(healthy.text, StartsWith("{"));
  EXPECT_THAT(healthy.text, HasSubstr("\"healthy\": true"));
  const auto ill = doctor({"--json"}, {{"RANK", "abc"}});
  EXPECT_EQ(ill.code, 1);
  EXPECT_THAT(ill.text, HasSubstr("\"healthy\": false"));
}

TEST(Doctor, TheGuideHasTheTableOfTheProgram) {
  std::ifstream file(ENVIRONMENT_GUIDE);
  const std::string guide(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(guide, HasSubstr(doctor({"--variables"}).text)) << "put what farad doctor --variables prints into it";
}

}  // namespace
}  // namespace farad::test
