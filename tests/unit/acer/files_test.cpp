#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize/input-archive.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "acer/best.h"
#include "acer/checkpoint.h"
#include "acer/environments/registry.h"
#include "acer/event_file.h"
#include "acer/metrics.h"
#include "acer/plot.h"
#include "acer/shared_parameters.h"
#include "temporary_directory.h"
#include "unit/acer/program.h"

namespace farad::acer {
namespace {

using test::TemporaryDirectory;
using testing::ContainsRegex;
using testing::HasSubstr;

// --- What TensorBoard reads ---

TEST(EventFile, ChecksumsAreThoseOfCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(masked(0), 0xa282ead8u);
}

/// A message in the encoding of protocol buffers, field by field.
struct Message {
  explicit Message(std::string_view bytes) {
    while (!bytes.empty()) {
      const uint64_t key = varint(bytes);
      auto& values = fields[static_cast<int>(key >> 3)];
      switch (key & 7) {
        case 0:
          values.push_back(std::to_string(varint(bytes)));
          break;
        case 1:
          values.push_back(cut(bytes, 8));
          break;
        case 2: {
          const uint64_t length = varint(bytes);
          values.push_back(cut(bytes, length));
          break;
        }
        case 5:
          values.push_back(cut(bytes, 4));
          break;
        default:
          throw std::runtime_error("wire type");
      }
    }
  }
  static uint64_t varint(std::string_view& bytes) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes.at(0));
      bytes.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  static std::string cut(std::string_view& bytes, size_t count) {
    if (count > bytes.size()) throw std::runtime_error("too short");
    std::string part(bytes.substr(0, count));
    bytes.remove_prefix(count);
    return part;
  }

  std::map<int, std::vector<std::string>> fields;
};

template <class T>
T number(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::vector<std::string> records_of(const std::string& directory) {
  const auto file = std::filesystem::directory_iterator(directory)->path();
  EXPECT_THAT(file.filename().string(), HasSubstr("tfevents"));
  std::ifstream in(file, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  const std::string text = all.str();
  std::string_view bytes = text;
  std::vector<std::string> records;
  while (!bytes.empty()) {
    const auto length = Message::cut(bytes, 8);
    EXPECT_EQ(number<uint32_t>(Message::cut(bytes, 4)), masked(crc32c(length)));
    records.push_back(Message::cut(bytes, number<uint64_t>(length)));
    EXPECT_EQ(number<uint32_t>(Message::cut(bytes, 4)), masked(crc32c(records.back())));
  }
  return records;
}

TEST(EventFile, CanBeReadBack) {
  TemporaryDirectory directory;
  EventFile(directory.path()).write(300, {{"return", 12.5}, {"unknown", std::nan("")}, {"loss", -0.25}});
  const auto records = records_of(directory.path());
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(Message(records[0]).fields[3].at(0), "brain.Event:2");
  auto event = Message(records[1]).fields;
  EXPECT_GT(number<double>(event[1].at(0)), 1.6e9);
  EXPECT_EQ(event[2].at(0), "300");
  auto values = Message(event[5].at(0)).fields[1];
  ASSERT_EQ(values.size(), 2);
  EXPECT_EQ(Message(values[0]).fields[1].at(0), "return");
  EXPECT_EQ(number<float>(Message(values[0]).fields[2].at(0)), 12.5f);
  EXPECT_EQ(Message(values[1]).fields[1].at(0), "loss");
  EXPECT_EQ(number<float>(Message(values[1]).fields[2].at(0)), -0.25f);
}

// --- Metrics ---

double value_of(const Row& row, const std::string& name) {
  for (const auto& [column, value] : row) {
    if (column == name) return value;
  }
  throw std::runtime_error("no column " + name);
}

TEST(Metrics, TheLastEpisodesAreThoseOfAllWorkers) {
  Settings settings;
  settings.hidden = {2};
  SharedModel shared("metrics-test-" + std::to_string(::getpid()), {1, {2}, 2}, settings);
  const auto board = std::make_unique<Board>();
  Metrics metrics(*board, 2, 100, 4);
  for (int i = 0; i < 300; ++i) board->tallies[i % 2 == 0 ? 0 : 1].add_episode(i % 2, 10);
  EXPECT_NEAR(value_of(metrics.row(*board, shared.model, 1), "return_mean"), 0.5, 0.02);
  // Whoever is reported of last: these are newer.
  for (int i = 0; i < 200; ++i) board->tallies[0].add_episode(7, 10);
  EXPECT_EQ(value_of(metrics.row(*board, shared.model, 2), "return_mean"), 7);
}

TEST(Metrics, RatesAreOfWhatWorkersComputeSinceTheyWentOn) {
  Settings settings;
  settings.hidden = {2};
  SharedModel shared("metrics-test-" + std::to_string(::getpid()), {1, {2}, 2}, settings);
  const auto board = std::make_unique<Board>();
  board->tallies[0].on_policy = 1000;  // Before it was resumed.
  Metrics metrics(*board, 2, 100, 4);
  board->tallies[0].on_policy += 3;
  board->tallies[1].off_policy += 7;
  const auto row = metrics.row(*board, shared.model, 2);
  EXPECT_EQ(value_of(row, "updates_per_second"), 5);
  EXPECT_EQ(value_of(row, "bytes_moved"), 3 * 4 * 1010);
  EXPECT_EQ(value_of(row, "updates"), 0);  // The model has seen none of them.
}

// --- Plots ---

TEST(Plot, TheInterquartileMeanIsOfTheMiddleHalf) {
  EXPECT_EQ(interquartile_mean({1000, 2, 3, -500}), 2.5);
  EXPECT_EQ(interquartile_mean({7}), 7);
  EXPECT_NEAR(interquartile_mean({0, 1, 2, 3, 100}), (0.75 * 1 + 2 + 0.75 * 3) / 2.5, 1e-12);
}

TEST(Plot, SeveralRunsAreOneCurveWithABand) {
  const Line one{"a", {0, 10, 20}, {0, 10, 20}}, other{"b", {0, 20, 40}, {4, 24, 44}};
  const auto line = together("both", {one, other}, 3);
  EXPECT_EQ(line.x, (std::vector<double>{0, 10, 20}));
  EXPECT_EQ(line.y, (std::vector<double>{2, 12, 22}));
  EXPECT_EQ(line.low, (std::vector<double>{0, 10, 20}));
  EXPECT_EQ(line.high, (std::vector<double>{4, 14, 24}));
  const auto svg = to_svg({"steps", "return <x>", {line}});
  EXPECT_THAT(svg, HasSubstr("<polygon"));
  EXPECT_THAT(svg, HasSubstr("return &lt;x>"));
}

// --- Runs that can be gone on with, and made again ---

Run acer(std::vector<std::string> options) {
  options.insert(options.begin(), FARAD_ACER);
  return run(std::move(options));
}

/// Every file of the model's checkpoint.
std::map<std::string, std::string> model_of(const std::string& out) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out + "/checkpoint/model")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream all;
    all << in.rdbuf();
    files[entry.path().filename()] = all.str();
  }
  EXPECT_FALSE(files.empty());
  return files;
}

TEST(Checkpoint, OneWorkerGoesOnToTheBit) {
  TemporaryDirectory whole, halves;
  const auto train = [](const char* steps, const std::string& out, bool resume) {
    std::vector<std::string> options{"--workers", "1", "--steps", steps, "--replay-start", "300", "--out", out};
    if (resume) options.push_back("--resume");
    const auto done = acer(options);
    ASSERT_EQ(done.code, 0) << done.said;
  };
  train("2000", whole.path(), false);
  train("900", halves.path(), false);
  EXPECT_NE(model_of(halves.path()), model_of(whole.path()));
  train("2000", halves.path(), true);
  EXPECT_EQ(model_of(halves.path()), model_of(whole.path()));
  EXPECT_EQ(column(halves.file("metrics.csv"), "steps").back(), column(whole.file("metrics.csv"), "steps").back());
}

TEST(Checkpoint, AMissingPartIsToldOrEndsWhatGoesOnToTheBit) {
  for (const int workers : {1, 2}) {
    TemporaryDirectory directory;
    const auto train = [&](const char* steps, std::vector<std::string> more) {
      more.insert(more.begin(), {"--workers", std::to_string(workers), "--env", "Catch", "--steps", steps,
                                 "--replay-start", "300", "--evaluate-every", "0", "--out", directory.path()});
      return acer(std::move(more));
    };
    const auto begun = train("600", {});
    ASSERT_EQ(begun.code, 0) << begun.said;
    const auto part = Checkpoint::worker(directory.file("checkpoint"), workers - 1);
    ASSERT_TRUE(std::filesystem::remove(part));
    const auto resumed = train("900", {"--resume"});
    EXPECT_EQ(resumed.code, workers == 1 ? 1 : 0) << resumed.said;
    EXPECT_THAT(resumed.said, HasSubstr(part + " is missing"));
  }
}

TEST(Schedule, AnAsynchronousRunIsMadeAgainToTheBit) {
  TemporaryDirectory directory;
  const std::vector<std::string> options{"--workers", "3", "--steps", "1500", "--replay-start", "300", "--seed", "5"};
  auto train = options, replay = options;
  train.insert(train.end(), {"--checkpoint-every", "500", "--out", directory.path()});
  const auto done = acer(train);
  ASSERT_EQ(done.code, 0) << done.said;
  replay.insert(replay.end(), {"--replay-schedule", directory.path()});
  const auto again = acer(replay);
  EXPECT_EQ(again.code, 0) << again.said;
  EXPECT_THAT(again.said, HasSubstr("equal to the bit"));
  replay[replay.size() - 3] = "6";  // another seed
  EXPECT_THAT(acer(replay).said, HasSubstr("values differ"));
}

TEST(AllReduced, ASeedDecidesEverything) {
  TemporaryDirectory one, other;
  for (const auto& out : {one.path(), other.path()}) {
    const auto done =
        acer({"--workers", "2", "--steps", "1200", "--replay-start", "300", "--policy", "allreduced", "--out", out});
    ASSERT_EQ(done.code, 0) << done.said;
  }
  EXPECT_EQ(model_of(one.path()), model_of(other.path()));
}

TEST(AllReduced, ARunThatWasKilledGoesOnFromItsLastCheckpointToTheBit) {
  TemporaryDirectory whole, halves;
  const std::vector<std::string> options{"--workers", "2",          "--replay-start",   "300",
                                         "--policy",  "allreduced", "--evaluate-every", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), options.begin(), options.end());
    return more;
  };
  {
    auto all = with({"--steps", "100000000", "--checkpoint-every", "1000", "--out", halves.path()});
    all.insert(all.begin(), FARAD_ACER);
    Program program(std::move(all));
    ASSERT_TRUE(program.hear("saved at")) << program.said();
  }  // It is killed.
  const auto board = std::make_unique<Board>();
  load_counts(Checkpoint::counts(Checkpoint(halves.path()).last()), *board, 2);
  ASSERT_GT(board->steps, 0);
  const auto steps = std::to_string(board->steps + 3000);
  const auto resumed = acer(with({"--steps", steps, "--resume", "--out", halves.path()}));
  ASSERT_EQ(resumed.code, 0) << resumed.said;
  EXPECT_THAT(resumed.said, HasSubstr("goes on after " + std::to_string(board->steps) + " steps"));
  const auto done = acer(with({"--steps", steps, "--out", whole.path()}));
  ASSERT_EQ(done.code, 0) << done.said;
  EXPECT_EQ(model_of(halves.path()), model_of(whole.path()));
}

TEST(BestPolicy, IsTheOneThatWasEvaluatedBest) {
  TemporaryDirectory directory;
  const auto done = acer({"--env", "Catch", "--workers", "1", "--steps", "1500", "--replay-start", "300",
                          "--evaluate-every", "500", "--hidden", "16", "--out", directory.path()});
  ASSERT_EQ(done.code, 0) << done.said;
  const auto means = column(directory.file("evaluations.csv"), "greedy_mean");
  Settings settings;
  settings.environment = "Catch";
  settings.hidden = {16};
  const auto agent = make_agent(settings, make_environment(settings.environment)->spec());
  torch::serialize::InputArchive archive;
  archive.load_from(BestPolicy::path(directory.path()));
  agent->network().load(archive);
  agent->follow_network();
  EXPECT_NEAR(evaluate(*agent, settings).greedy.mean, *std::max_element(means.begin(), means.end()), 1e-5);
}

TEST(Config, SaysWhatTheProgramWasBuiltFrom) {
  TemporaryDirectory directory;
  const auto done = acer({"--env", "Catch", "--workers", "1", "--steps", "20", "--replay-ratio", "0", "--hidden", "4",
                          "--evaluation-episodes", "1", "--out", directory.path()});
  ASSERT_EQ(done.code, 0) << done.said;
  std::ostringstream config;
  config << std::ifstream(directory.file("config.json")).rdbuf();
  EXPECT_THAT(config.str(), ContainsRegex("\"build\": \"[0-9a-f]{40}\""));
  EXPECT_THAT(config.str(), ContainsRegex("\"compiler\": \"(g\\+\\+|clang) [0-9]+"));
  EXPECT_THAT(config.str(), HasSubstr("\"torch\": \"" TORCH_VERSION "\""));
  EXPECT_THAT(config.str(), HasSubstr("\"env\": \"Catch\""));
}

TEST(Compare, DrawsRunsAndTellsWhenTheyWereSolved) {
  TemporaryDirectory directory;
  for (const char* name : {"/a", "/b"}) {
    std::filesystem::create_directory(directory.path() + name);
    std::ofstream(directory.path() + name + "/evaluations.csv")
        << "steps,seconds,greedy_mean\n1000,1,20\n2000,2,300\n3000,3,480\n";
  }
  const auto done = acer({"plot", "both=" + directory.file("a") + "," + directory.file("b"), "--solved", "475", "--out",
                          directory.file("plot.svg")});
  EXPECT_EQ(done.code, 0);
  EXPECT_THAT(done.said,
              HasSubstr("both: 2 runs, greedy_mean at the end 480.00 (480.00 to 480.00); 2 reached 475, at 3000"));
  EXPECT_TRUE(std::filesystem::exists(directory.file("plot.svg")));
  EXPECT_THAT(acer({"plot", directory.file("none")}).said, HasSubstr("cannot read"));
}

}  // namespace
}  // namespace farad::acer
