#include "acer/environments/lunar_lander.h"

#include <box2d/box2d.h>

#include <algorithm>
#include <cmath>

namespace farad::acer {
namespace {

// Lengths are given in pixels of a picture of 600 by 400.
constexpr double scale = 30, width = 600 / scale, height = 400 / scale;
constexpr double rate = 50;  // steps a second
constexpr double pad_height = height / 4, leg_down = 18 / scale, leg_aside = 20 / scale;
constexpr size_t chunks = 11;           // of the moon
constexpr size_t heights = chunks + 1;  // that they come from
constexpr size_t drawn_at_first = heights + 2, drawn_each_step = 3;

/// Bits by which bodies know what they collide with: all of them with the moon only.
enum Category : uint16_t { moon_bit = 0x0001, hull_bit = 0x0010, leg_bit = 0x0020 };

b2Vec2 vector(double x, double y) { return {static_cast<float>(x), static_cast<float>(y)}; }

/// A thing that the lander is made of.
b2Body* make_part(b2World& world, const b2Vec2& at, float angle, const b2Shape& shape, double density, double friction,
                  Category category) {
  b2BodyDef body;
  body.type = b2_dynamicBody;
  body.position = at;
  body.angle = angle;
  b2FixtureDef fixture;
  fixture.shape = &shape;
  fixture.density = static_cast<float>(density);
  fixture.friction = static_cast<float>(friction);
  fixture.restitution = 0;
  fixture.filter.categoryBits = category;
  fixture.filter.maskBits = moon_bit;
  auto* made = world.CreateBody(&body);
  made->CreateFixture(&fixture);
  return made;
}

}  // namespace

/// The bodies of one episode.
class LunarLander::World final : private b2ContactListener {
 public:
  /// `drawn`: heights of the ground, each in [0, 1), then the push that it begins with, each in [-1, 1).
  explicit World(std::span<const double> drawn) : world_({0, -10}) {
    world_.SetContactListener(this);
    put_up_moon(drawn.first(heights));
    put_up_lander();
    constexpr double push = 1000;
    hull_->ApplyForceToCenter(vector(push * drawn[heights], push * drawn[heights + 1]), true);
    move();
    worth_ = worth();
  }

  Outcome advance(const Step& step) {
    const bool main = step.action == 2, side = step.action == 1 || step.action == 3;
    if (main) fire_main(step.dispersion);
    if (side) fire_side(step.action == 3 ? 1 : -1, step.dispersion);
    move();
    const double before = worth_;
    worth_ = worth();
    if (!hull_->IsAwake()) return {.reward = 100, .terminated = true};
    if (crashed_ || std::abs(seen_[0]) >= 1) return {.reward = -100, .terminated = true};
    return {.reward = worth_ - before - (main ? 0.3 : 0) - (side ? 0.03 : 0)};
  }

  const std::array<double, 8>& seen() const { return seen_; }

 private:
  void put_up_moon(std::span<const double> drawn) {
    std::array<double, heights> rough;
    std::transform(drawn.begin(), drawn.end(), rough.begin(), [](double part) { return part * height / 2; });
    constexpr size_t middle = chunks / 2;
    std::fill(rough.begin() + middle - 2, rough.begin() + middle + 3, pad_height);
    const auto corner = [&](size_t i) {
      const double mean = 0.33 * (rough[(i + heights - 1) % heights] + rough[i] + rough[i + 1]);
      return vector(width / (chunks - 1) * static_cast<double>(i), mean);
    };
    b2BodyDef body;
    auto* moon = world_.CreateBody(&body);
    b2EdgeShape edge;
    edge.SetTwoSided(vector(0, 0), vector(width, 0));
    moon->CreateFixture(&edge, 0);
    b2FixtureDef fixture;
    fixture.shape = &edge;
    fixture.friction = 0.1f;
    for (size_t i = 0; i + 1 < chunks; ++i) {
      edge.SetTwoSided(corner(i), corner(i + 1));
      moon->CreateFixture(&fixture);
    }
  }

  void put_up_lander() {
    constexpr double outline[][2] = {{-14, 17}, {-17, 0}, {-17, -10}, {17, -10}, {17, 0}, {14, 17}};
    std::array<b2Vec2, std::size(outline)> corners;
    for (size_t i = 0; i < corners.size(); ++i) corners[i] = vector(outline[i][0] / scale, outline[i][1] / scale);
    b2PolygonShape hull;
    hull.Set(corners.data(), static_cast<int32>(corners.size()));
    hull_ = make_part(world_, vector(width / 2, height), 0, hull, 5, 0.1, hull_bit);

    b2PolygonShape leg;
    leg.SetAsBox(static_cast<float>(2 / scale), static_cast<float>(8 / scale));
    for (size_t i = 0; i < 2; ++i) {
      const float way = i == 0 ? -1 : 1;
      legs_[i].body = make_part(world_, vector(width / 2 - static_cast<double>(way) * leg_aside, height), way * 0.05f,
                                leg, 1, 0.2, leg_bit);
      b2RevoluteJointDef joint;
      joint.bodyA = hull_;
      joint.bodyB = legs_[i].body;
      joint.localAnchorB = vector(static_cast<double>(way) * leg_aside, leg_down);
      joint.enableMotor = joint.enableLimit = true;
      joint.maxMotorTorque = 40;
      joint.motorSpeed = 0.3f * way;
      joint.lowerAngle = i == 0 ? 0.4f : -0.9f;
      joint.upperAngle = i == 0 ? 0.9f : -0.4f;
      world_.CreateJoint(&joint);
    }
  }

  /// An engine is a blow against the hull, away from where it is. `up`, `aside`: where, along the hull's own axes.
  void blow(double power, double up, double aside, const b2Vec2& from) {
    const double sine = std::sin(static_cast<double>(hull_->GetAngle())),
                 cosine = std::cos(static_cast<double>(hull_->GetAngle()));
    const double x = sine * up - cosine * aside, y = -cosine * up - sine * aside;
    hull_->ApplyLinearImpulse(vector(-x * power, -y * power), hull_->GetPosition() + from + vector(x, y), true);
  }

  void fire_main(const std::array<double, 2>& dispersion) {
    blow(13, (4 + 2 * dispersion[0]) / scale, dispersion[1] / scale, {0, 0});
  }

  void fire_side(double way, const std::array<double, 2>& dispersion) {
    const auto angle = static_cast<double>(hull_->GetAngle());
    blow(0.6, dispersion[0] / scale, (3 * dispersion[1] + way * 12) / scale,
         vector(-std::sin(angle) * 17 / scale, std::cos(angle) * 14 / scale));
  }

  void move() {
    world_.Step(static_cast<float>(1 / rate), 180, 60);
    const auto& at = hull_->GetPosition();
    const auto& velocity = hull_->GetLinearVelocity();
    seen_ = {(static_cast<double>(at.x) - width / 2) / (width / 2),
             (static_cast<double>(at.y) - pad_height - leg_down) / (height / 2),
             static_cast<double>(velocity.x) * (width / 2) / rate,
             static_cast<double>(velocity.y) * (height / 2) / rate,
             static_cast<double>(hull_->GetAngle()),
             20 * static_cast<double>(hull_->GetAngularVelocity()) / rate,
             legs_[0].touches ? 1.0 : 0.0,
             legs_[1].touches ? 1.0 : 0.0};
  }

  /// The nearer to rest on the pad, the more.
  double worth() const {
    return -100 * std::hypot(seen_[0], seen_[1]) - 100 * std::hypot(seen_[2], seen_[3]) - 100 * std::abs(seen_[4]) +
           10 * seen_[6] + 10 * seen_[7];
  }

  void BeginContact(b2Contact* contact) override { touched(*contact, true); }
  void EndContact(b2Contact* contact) override { touched(*contact, false); }

  void touched(b2Contact& contact, bool begins) {
    for (const auto* body : {contact.GetFixtureA()->GetBody(), contact.GetFixtureB()->GetBody()}) {
      if (body == hull_) crashed_ |= begins;
      // One edge of the moon of which it lets go counts, even if it touches the next, as in Gymnasium.
      for (auto& leg : legs_) {
        if (body == leg.body) leg.touches = begins;
      }
    }
  }

  struct Leg {
    b2Body* body = nullptr;
    bool touches = false;
  };

  b2World world_;
  b2Body* hull_ = nullptr;
  std::array<Leg, 2> legs_;
  bool crashed_ = false;
  std::array<double, 8> seen_{};
  double worth_ = 0;
};

LunarLander::LunarLander()
    : Environment({.name = "LunarLander-v2", .observation_size = 8, .actions = 4, .time_limit = 1000, .solved = 200}) {}

LunarLander::~LunarLander() = default;

void LunarLander::begin(Random& random) {
  history_.clear();
  for (size_t i = 0; i < heights; ++i) history_.push_back(random.uniform());
  for (size_t i = heights; i < drawn_at_first; ++i) history_.push_back(random.uniform(-1, 1));
  world_ = std::make_unique<World>(history_);
}

Outcome LunarLander::advance(const Action& action, Random& random) {
  const Step step{action.choice, {random.uniform(-1, 1), random.uniform(-1, 1)}};
  history_.insert(history_.end(), {static_cast<double>(step.action), step.dispersion[0], step.dispersion[1]});
  return world_->advance(step);
}

void LunarLander::observe(std::span<float> observation) const {
  std::transform(world_->seen().begin(), world_->seen().end(), observation.begin(),
                 [](double x) { return static_cast<float>(x); });
}

void LunarLander::set_state(std::span<const double> state) {
  history_.assign(state.begin(), state.end());
  world_ = std::make_unique<World>(state.first(drawn_at_first));
  for (size_t i = drawn_at_first; i + drawn_each_step <= state.size(); i += drawn_each_step)
    world_->advance({static_cast<int64_t>(state[i]), {state[i + 1], state[i + 2]}});
}

}  // namespace farad::acer
