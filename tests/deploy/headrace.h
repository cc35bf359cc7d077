#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace headrace::cli {

// What one run of the real binary gave.
struct Outcome {
  int status = -1;  // of exit; -1: killed, or it took longer than a minute
  std::string out;
  std::string err;
  nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
  // True if stderr is exactly one line, begins with "headrace: " and holds `part`.
  bool one_error(const std::string& part) const;
};
Outcome headrace(const std::vector<std::string>& arguments, const std::string& input = "");

// Files of the test models: "script/base.gguf".
std::string test_model(const std::string& name);

}  // namespace headrace::cli
