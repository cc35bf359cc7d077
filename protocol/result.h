#pragma once

#include <utility>
#include <variant>

#include "protocol/check.h"
#include "protocol/error.h"

namespace headrace {

// A value or the Status that says why there is none; member names of std::expected, which C++20
// lacks.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    HEADRACE_CHECK(!std::get<1>(state_).ok());
  }

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Status& error() const& { return std::get<1>(state_); }
  Status&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace headrace
