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
#include "unit/shared/models.h"

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

int event_files_in(const std::string& directory) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    count += entry.path().filename().string().starts_with("events.out.tfevents.");
  return count;
}

TEST(EventFile, OfANewRunReplacesThoseThatWereThere) {
  TemporaryDirectory directory;
  std::ofstream(directory.file("events.out.tfevents.1.elsewhere")) << "of another run";
  EventFile(directory.path()).write(300, {{"return", 1}});
  EventFile(directory.path()).write(400, {{"return", 2}});
  EXPECT_EQ(event_files_in(directory.path()), 1);
  EXPECT_EQ(Message(records_of(directory.path()).at(1)).fields[2].at(0), "400");
}

TEST(EventFile, OfARunThatGoesOnSaysFromWhereOnBesideThoseBefore) {
  TemporaryDirectory directory;
  EventFile(directory.path(), 250).write(300, {{"return", 2}});
  const auto records = records_of(directory.path());
  ASSERT_EQ(records.size(), 3);
  auto begun = Message(records[1]).fields;
  EXPECT_EQ(begun[2].at(0), "251");                         // The first step that is made anew.
  EXPECT_EQ(Message(begun[7].at(0)).fields[1].at(0), "1");  // SessionLog.START
  EventFile(directory.path(), 300);
  EXPECT_EQ(event_files_in(directory.path()), 2);  // Also within the same second.
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

TEST(Metrics, TellHowManyUpdatesWereLostAndRejected) {
  Settings settings;
  settings.hidden = {2};
  const auto name = "metrics-test-" + std::to_string(::getpid());
  SharedModel shared(name, {1, {2}, 2}, settings);
  const auto board = std::make_unique<Board>();
  Metrics metrics(*board, 2, 100, 4);
  // As workers that have ended would have left it.
  const auto segment = shared::segment_of(name);
  auto& seat = segment->header().seats[0];
  seat.begun.fetch_add(5);
  seat.rejected.fetch_add(2);
  const auto row = metrics.row(*board, shared.model, 1);
  EXPECT_EQ(value_of(row, "rejected"), 2);
  EXPECT_EQ(value_of(row, "lost"), 3);
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

// --- What a run leaves ---

TEST(Checkpoint, TheLastOneIsThereWheneverItIsReplaced) {
  TemporaryDirectory directory;
  const Checkpoint checkpoint(directory.path());
  const auto holds = [](const std::string& parts) { return std::filesystem::exists(parts + "/part"); };
  // As somebody leaves it who was killed between the two renames.
  std::filesystem::create_directory(directory.file("checkpoint.old"));
  std::ofstream(directory.file("checkpoint.old/part")) << "whole";
  EXPECT_TRUE(holds(checkpoint.last()));
  EXPECT_THROW(checkpoint.publish(directory.file("none")), std::filesystem::filesystem_error);
  EXPECT_TRUE(holds(checkpoint.last()));
  Checkpoint::clear(checkpoint.next());
  std::ofstream(checkpoint.next() + "/part") << "next";
  checkpoint.publish(checkpoint.next());
  EXPECT_EQ(checkpoint.last(), directory.file("checkpoint"));
  EXPECT_TRUE(holds(checkpoint.last()));
  EXPECT_FALSE(std::filesystem::exists(directory.file("checkpoint.old")));
}

TEST(CsvFile, GoesOnOnlyWithTheColumnsThatItHas) {
  TemporaryDirectory directory;
  const auto path = directory.file("rows.csv");
  CsvFile(path, false).write({{"steps", 1}, {"updates", 2}});
  CsvFile(path, true).write({{"steps", 3}, {"updates", 4}});
  EXPECT_EQ(column(path, "updates"), (std::vector<double>{2, 4}));
  CsvFile other(path, true);
  EXPECT_THROW(other.write({{"steps", 5}, {"lost", 0}, {"updates", 6}}), Error);
  EXPECT_EQ(column(path, "updates"), (std::vector<double>{2, 4}));
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
