#include "protocol/time_model.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

// Longer than any deadline, short enough that adding it to now() cannot overflow.
constexpr double kLongestSeconds = 86400.0;

Duration from_seconds(double seconds) {
  if (!(seconds > 0)) return Duration{0};  // also NaN
  return Duration{static_cast<int64_t>(std::min(seconds, kLongestSeconds) * 1e9)};
}

// Zero when the limit is unknown: an unmeasured wall is no wall.
double seconds_at(double amount, double per_second) {
  return per_second > 0 ? amount / per_second : 0;
}

constexpr size_t kReadPointsMax = 16;
// Points of one measurement differ by a quarter on a machine that is shared.
constexpr double kCacheAbove = 1.5;
// Below this nothing is near.
constexpr double kStrainMin = 0.01;

uint64_t working_set(double bytes) { return static_cast<uint64_t>(std::min(bytes, 1e18)); }

double peak(const TimeModel& w) { return product_peak(w.limits, w.cost.quantized); }

Duration corrected(double seconds, double factor, Duration overhead) {
  const Duration fixed = std::clamp(overhead, Duration{0}, from_seconds(kLongestSeconds));
  return from_seconds(seconds * factor) + fixed;
}

}  // namespace

double product_peak(const MachineLimits& limits, bool quantized) {
  if (limits.bf16_flops_per_second > 0) return limits.bf16_flops_per_second;
  return quantized ? limits.int8_ops_per_second : limits.f32_flops_per_second;
}

double attention_peak(const MachineLimits& limits) {
  return limits.bf16_flops_per_second > 0 ? limits.bf16_flops_per_second
                                          : limits.f32_flops_per_second;
}

double read_limit(const MachineLimits& limits, uint64_t working_set) {
  const auto& points = limits.read;
  if (points.empty()) return 0;
  if (working_set <= points.front().working_set) return points.front().bytes_per_second;
  if (working_set >= points.back().working_set) return points.back().bytes_per_second;
  const auto above = std::upper_bound(
      points.begin(), points.end(), working_set,
      [](uint64_t size, const ReadPoint& point) { return size < point.working_set; });
  const auto below = above - 1;
  // Rates over the logarithm of the size. A first point of size 0 has no logarithm: taken as 1.
  const double low = std::log2(std::max<double>(1, static_cast<double>(below->working_set)));
  const double high = std::log2(std::max<double>(1, static_cast<double>(above->working_set)));
  const double at = std::log2(std::max<double>(1, static_cast<double>(working_set)));
  if (!(high > low)) return above->bytes_per_second;
  const double part = (at - low) / (high - low);
  return below->bytes_per_second + part * (above->bytes_per_second - below->bytes_per_second);
}

Duration predict_prefill(const TimeModel& w, uint64_t tokens, uint64_t cached) {
  if (tokens == 0) return corrected(0, 1, w.correction.overhead);
  const double n = static_cast<double>(tokens);
  const double before = static_cast<double>(cached);
  // Token i of the new ones looks at `cached` + i + 1 keys: n * cached + n (n + 1) / 2 pairs.
  const double pairs = n * before + n * (n + 1) / 2;
  const double flops = n * static_cast<double>(w.cost.flops_per_token);
  const double attention = pairs * static_cast<double>(w.cost.attention_flops);
  const double compute =
      seconds_at(flops, peak(w)) + seconds_at(attention, attention_peak(w.limits));
  const double kv = (before + n) * static_cast<double>(w.cost.kv_token_bytes);
  const double bytes = static_cast<double>(w.cost.weight_bytes) + kv;
  const double move = seconds_at(bytes, read_limit(w.limits, working_set(bytes)));
  return corrected(std::max(compute, move), w.correction.prefill, w.correction.overhead);
}

Duration predict_decode_step(const TimeModel& w, uint64_t batch, uint64_t context_tokens) {
  const double rows = static_cast<double>(batch);
  const double keys = static_cast<double>(context_tokens);
  const double bytes =
      static_cast<double>(w.cost.weight_bytes) + keys * static_cast<double>(w.cost.kv_token_bytes);
  const double flops =
      rows * (static_cast<double>(w.cost.flops_per_token) + static_cast<double>(w.cost.head_flops));
  const double attention = keys * static_cast<double>(w.cost.attention_flops);
  const double compute =
      seconds_at(flops, peak(w)) + seconds_at(attention, attention_peak(w.limits));
  const double move = seconds_at(bytes, read_limit(w.limits, working_set(bytes)));
  return corrected(std::max(compute, move), w.correction.decode, w.correction.overhead);
}

Duration predict_transfer(const TimeModel& from, const TimeModel& to, uint64_t bytes) {
  const double a = from.limits.link_bytes_per_second;
  const double b = to.limits.link_bytes_per_second;
  const double slower = a > 0 && b > 0 ? std::min(a, b) : std::max(a, b);
  return from_seconds(seconds_at(static_cast<double>(bytes), slower));
}

void raise_read_limit(MachineLimits& limits, uint64_t working_set, double bytes_per_second) {
  auto& points = limits.read;
  if (!(read_limit(limits, working_set) < bytes_per_second)) return;
  auto above = std::find_if(points.begin(), points.end(), [&](const ReadPoint& point) {
    return point.working_set >= working_set;
  });
  const bool between = above != points.end() && above->working_set > working_set;
  if (between && above != points.begin()) {
    if (points.size() < kReadPointsMax) {
      above = points.insert(above, {working_set, bytes_per_second});
    } else {
      above->bytes_per_second = std::max(above->bytes_per_second, bytes_per_second);
    }
  }
  // The point itself, or the only one that counts beyond an end of the curve.
  if (above == points.end() && !points.empty()) --above;
  for (auto point = points.begin(); point != points.end() && point <= above; ++point) {
    point->bytes_per_second = std::max(point->bytes_per_second, bytes_per_second);
  }
}

bool fits_cache(const MachineLimits& limits, uint64_t working_set) {
  if (limits.read.empty()) return false;
  const double far = limits.read.back().bytes_per_second;
  return read_limit(limits, working_set) > kCacheAbove * far;
}

Wall nearest_wall(const Strain& strain) {
  Wall wall = Wall::kUnknown;
  double most = kStrainMin;
  const auto consider = [&](double share, Wall candidate) {
    if (!(share > most)) return;
    most = share;
    wall = candidate;
  };
  consider(strain.bandwidth, strain.cached ? Wall::kCache : Wall::kDram);
  consider(strain.compute, Wall::kCompute);
  consider(strain.link, Wall::kLink);
  consider(strain.kv_capacity, Wall::kKvCapacity);
  consider(strain.gaps, Wall::kGaps);
  const double room = std::max(0.0, 1 - (wall == Wall::kUnknown ? 0 : most));
  consider(strain.queue * room / 2, Wall::kQueue);
  return wall;
}

const char* name(Wall wall) {
  switch (wall) {
    case Wall::kUnknown:
      break;
    case Wall::kDram:
      return "dram";
    case Wall::kCache:
      return "cache";
    case Wall::kCompute:
      return "compute";
    case Wall::kLink:
      return "link";
    case Wall::kKvCapacity:
      return "kv_capacity";
    case Wall::kQueue:
      return "queue";
    case Wall::kGaps:
      return "gaps";
  }
  return "none";
}

double bandwidth_saturation(const MachineLimits& limits, uint64_t bytes, uint64_t working_set,
                            double seconds) {
  const double limit = read_limit(limits, working_set);
  if (!(limit > 0) || !(seconds > 0)) return 0;
  return static_cast<double>(bytes) / seconds / limit;
}

double compute_saturation(const TimeModel& w, uint64_t flops, double seconds) {
  const double limit = peak(w);
  if (!(limit > 0) || !(seconds > 0)) return 0;
  return static_cast<double>(flops) / seconds / limit;
}

}  // namespace headrace
