// The event file of a training, read by TensorBoard itself. Skipped where it cannot be installed.

#include <gtest/gtest.h>

#include <filesystem>

#include "process/python_packages.h"
#include "temporary_directory.h"
#include "unit/acer/program.h"

namespace farad::acer {
namespace {

constexpr char comparison[] = R"(
import csv
import struct
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(directory, size_guidance={"scalars": 0})
events.Reload()
with open(directory + "/metrics.csv") as file:
    rows = list(csv.DictReader(file))
assert len(rows) > 2, rows
known = [name for name in rows[0] if name != "steps" and any(row[name] for row in rows)]
assert sorted(events.Tags()["scalars"]) == sorted(known), events.Tags()


def single(number):
    return struct.unpack("f", struct.pack("f", float(number)))[0]


for name in known:
    read = [(event.step, event.value) for event in events.Scalars(name)]
    wanted = [(int(row["steps"]), single(row[name])) for row in rows if row[name]]
    assert [step for step, _ in read] == [step for step, _ in wanted], (name, read, wanted)
    # The file of columns has nine digits.
    assert all(abs(a - b) <= 1e-6 * abs(b) for (_, a), (_, b) in zip(read, wanted)), (name, read, wanted)
)";

TEST(TensorBoard, ReadsAllOfATrainingsMetricsAndNoneOfWhatItDidNotGoOnFrom) {
  const test::PythonPackages packages("tensorboard");
  if (!packages.are_there()) GTEST_SKIP() << "pip cannot install tensorboard here: it is not tried";
  const test::TemporaryDirectory out;
  const auto train = [&](const char* steps, std::vector<std::string> more) {
    more.insert(more.begin(),
                {FARAD_ACER, "--env", "Catch", "--workers", "2", "--steps", steps, "--replay-start", "300", "--hidden",
                 "16", "--evaluate-every", "1000", "--report-every", "500", "--out", out.path()});
    const auto done = run(std::move(more));
    ASSERT_EQ(done.code, 0) << done.said;
  };
  const auto expect_read = [&](const char* what) {
    EXPECT_TRUE(packages.run("directory = \"" + out.path() + "\"\n" + comparison)) << what;
  };
  train("4000", {});
  train("3000", {});
  expect_read("a run where another one was before");
  // Goes on, and once more from the same checkpoint, as if it had been killed before it saved the next.
  std::filesystem::copy(out.file("checkpoint"), out.file("kept"), std::filesystem::copy_options::recursive);
  train("5000", {"--resume"});
  std::filesystem::remove_all(out.file("checkpoint"));
  std::filesystem::rename(out.file("kept"), out.file("checkpoint"));
  train("6000", {"--resume"});
  expect_read("a run that was gone on with twice");
}

}  // namespace
}  // namespace farad::acer
