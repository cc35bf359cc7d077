#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::coordinator {

// What one chat template may cost. Real templates have 20 KB at most, nest some ten levels and take
// a few hundred steps a message.
constexpr size_t kTemplateSourceMax = 256u << 10;  // bytes
constexpr uint32_t kTemplateDepthMax = 96;         // expressions and blocks inside one another
constexpr uint32_t kTemplateValueDepthMax = 16;    // lists and dictionaries inside one another
constexpr uint64_t kTemplateStepsMax = 2'000'000;  // expressions evaluated and statements run
constexpr uint64_t kTemplateWorkMax = 128u << 20;  // bytes of all values made on the way
constexpr size_t kTemplateOutputMax = 16u << 20;   // bytes rendered
constexpr size_t kTemplateItemsMax = 256;          // of one literal, call, namespace, elif chain
constexpr int64_t kTemplateRangeMax = 100'000;     // of range()
constexpr size_t kTemplateMessagesMax = 4096;

}  // namespace headrace::coordinator
