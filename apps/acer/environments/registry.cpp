#include "acer/environments/registry.h"

#include <farad/error.h>

#include <functional>

#include "acer/environments/boards.h"
#include "acer/environments/classic.h"
#include "acer/environments/grid_world.h"
#ifdef FARAD_BOX2D
#include "acer/environments/lunar_lander.h"
#endif
#include "acer/environments/pipe.h"

namespace farad::acer {
namespace {

using Maker = std::unique_ptr<Environment> (*)();

template <class One>
std::unique_ptr<Environment> make() {
  return std::make_unique<One>();
}

constexpr char lunar_lander[] = "LunarLander-v2";

const std::pair<const char*, Maker> makers[] = {
    {"CartPole-v1", make<CartPole>},   {"Acrobot-v1", make<Acrobot>}, {"MountainCar-v0", make<MountainCar>},
    {"Pendulum-v1", make<Pendulum>},   {"Catch", make<Catch>},        {"Orchard", make<Orchard>},
    {"GridWorld", make<GridWorld>},
#ifdef FARAD_BOX2D
    {lunar_lander, make<LunarLander>},
#endif
};

}  // namespace

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers) names.push_back(name);
  return names;
}

std::unique_ptr<Environment> make_environment(const std::string& name) {
  constexpr std::string_view pipe = "pipe:";
  if (name.starts_with(pipe)) return std::make_unique<PipeEnvironment>(name.substr(pipe.size()));
  for (const auto& [known, maker] : makers) {
    if (name == known) return maker();
  }
  if (name == lunar_lander) {
    throw Error("[acer] this farad-acer was built without Box2D, which " + name +
                " needs: install libbox2d-dev (Debian), then configure and build again");
  }
  std::string all;
  for (const auto& known : environment_names()) all += known + ", ";
  throw Error("[acer] there is no environment \"" + name + "\"; there are " + all + "and pipe:COMMAND");
}

}  // namespace farad::acer
