#pragma once

namespace resid {

// What is left of a count. One that has faded to next to nothing is nothing: numbers too small to
// be normal would stay for ever (times 0.7, rounded, the smallest is itself) and cost a hundred
// cycles each time.
inline float faded(float count, float by) {
  constexpr float kNothing = 1e-20F;
  const float left = count * by;
  return left < kNothing ? 0.0F : left;
}

}  // namespace resid
