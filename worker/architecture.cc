#include "worker/architecture.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "kernels/math.h"

namespace headrace::worker {
namespace {

using Reader = Status (*)(const GgufFile& file, LlamaConfig& config);
Status read_llama(const GgufFile& file, LlamaConfig& config);

struct Architecture {
  std::string_view name;  // general.architecture
  Reader read;
};
constexpr Architecture kArchitectures[] = {{"llama", read_llama}};

std::string supported() {
  std::string out;
  for (const Architecture& a : kArchitectures)
    out += (out.empty() ? "" : ", ") + std::string(a.name);
  return out;
}

// Entries that read_llama takes, and others without an effect on what we compute.
constexpr std::string_view kKnownEntries[] = {
    "block_count",          "context_length",         "embedding_length",
    "feed_forward_length",  "attention.head_count",   "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "rope.dimension_count", "rope.freq_base",         "rope.scaling.type",
    "rope.scaling.factor",  "rope.scaling.finetuned", "rope.scaling.original_context_length",
    "vocab_size",           "tensor_data_layout",
};

// Entries that are harmless at one value only.
struct Neutral {
  std::string_view entry;
  double value;
};
constexpr Neutral kNeutralEntries[] = {
    {"expert_count", 0},
    {"expert_used_count", 0},
    {"attention.sliding_window", 0},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"rope.scaling.attn_factor", 1},
    {"rope.scale_linear", 1},
    {"logit_scale", 1},
    {"embedding_scale", 1},
    {"residual_scale", 1},
};

// Collects values of one architecture's entries; the first fault sticks.
class Entries {
 public:
  Entries(const GgufFile& file, const std::string& prefix) : file_(file), prefix_(prefix + ".") {}

  bool has(std::string_view entry) const { return file_.has(key(entry)); }
  uint32_t integer(std::string_view entry, uint64_t max) {
    const Result<uint64_t> v = file_.integer(key(entry));
    if (!v) return keep(v.error());
    if (*v == 0 || *v > max)
      return keep(file_.fault("metadata entry " + key(entry) + " is " + std::to_string(*v) +
                              "; possible are 1 to " + std::to_string(max)));
    return static_cast<uint32_t>(*v);
  }
  uint32_t integer_or(std::string_view entry, uint64_t max, uint32_t otherwise) {
    return has(entry) ? integer(entry, max) : otherwise;
  }
  double positive(std::string_view entry) {
    const Result<double> v = file_.number(key(entry));
    if (!v) return keep(v.error());
    if (!(*v > 0) || !std::isfinite(*v))
      return keep(file_.fault("metadata entry " + key(entry) + " has to be a positive number"));
    return *v;
  }
  void refuse(std::string fault) { keep(file_.fault(fault)); }
  std::string key(std::string_view entry) const { return prefix_ + std::string(entry); }
  const Status& status() const { return status_; }

 private:
  uint32_t keep(Status s) {
    if (status_.ok()) status_ = std::move(s);
    return 0;
  }

  const GgufFile& file_;
  std::string prefix_;
  Status status_;
};

// Anything of this architecture that is unknown, or known and not neutral, changes the numbers.
Status check_entries(const GgufFile& file, const std::string& prefix) {
  for (const auto& [key, value] : file.entries()) {
    if (!key.starts_with(prefix + ".")) continue;
    const std::string_view entry = std::string_view(key).substr(prefix.size() + 1);
    bool known = false;
    for (const std::string_view k : kKnownEntries) known = known || k == entry;
    for (const Neutral& n : kNeutralEntries)
      if (n.entry == entry) {
        const Result<double> v = file.number(key);
        known = v && *v == n.value;
      }
    if (entry == "attention.causal" || entry == "use_parallel_residual") {
      const Result<bool> v = file.flag(key);
      known = v && *v == (entry == "attention.causal");
    }
    if (!known) return file.fault("metadata entry " + key + " asks for what is not supported yet");
  }
  return {};
}

// Shapes of all tensors that the configuration needs; optional ones are looked up by the caller.
Status check_tensors(const GgufFile& file, const LlamaConfig& c) {
  std::set<std::string> used = {"output.weight", "rope_freqs.weight"};
  Status status;
  const auto need = [&](const std::string& name, uint32_t rows, uint32_t cols) {
    used.insert(name);
    if (!status.ok()) return;
    const GgufTensor* t = file.tensor(name);
    if (t == nullptr) {
      status = file.fault("tensor " + name + " is missing");
    } else if (t->cols() != cols || t->rows() != rows) {
      status = file.fault("tensor " + name + " is " + std::to_string(t->rows()) + " x " +
                          std::to_string(t->cols()) + ", should be " + std::to_string(rows) +
                          " x " + std::to_string(cols));
    } else if (name.ends_with("norm.weight") && t->type != kernels::SourceType::kF32) {
      status = file.fault("tensor " + name + " has type " +
                          std::string(headrace::worker::name(t->type)) + "; norms have to be F32");
    }
  };
  need("token_embd.weight", c.vocab, c.dim);
  need("output_norm.weight", 1, c.dim);
  if (!c.tied) need("output.weight", c.vocab, c.dim);
  for (uint32_t i = 0; i < c.layers; i++) {
    const std::string at = "blk." + std::to_string(i) + ".";
    need(at + "attn_norm.weight", 1, c.dim);
    need(at + "attn_q.weight", c.q_rows(), c.dim);
    need(at + "attn_k.weight", c.kv_rows(), c.dim);
    need(at + "attn_v.weight", c.kv_rows(), c.dim);
    need(at + "attn_output.weight", c.dim, c.q_rows());
    need(at + "ffn_norm.weight", 1, c.dim);
    need(at + "ffn_gate.weight", c.ffn, c.dim);
    need(at + "ffn_up.weight", c.ffn, c.dim);
    need(at + "ffn_down.weight", c.dim, c.ffn);
  }
  if (!status.ok()) return status;
  for (const GgufTensor& t : file.tensors())
    if (!used.contains(t.name))
      return file.fault("tensor " + t.name + " has no place in architecture " + c.architecture +
                        " as supported");
  return {};
}

// llama3 scaling: what each pair's frequency is divided by.
Status read_divisors(const GgufFile& file, LlamaConfig& c) {
  const GgufTensor* t = file.tensor("rope_freqs.weight");
  if (t == nullptr) return {};
  const uint32_t pairs = c.rotated / 2;
  if (t->cols() != pairs || t->rows() != 1 || t->type != kernels::SourceType::kF32)
    return file.fault("tensor rope_freqs.weight should be " + std::to_string(pairs) +
                      " values F32");
  c.rope_divisors.resize(pairs);
  return file.file().read(t->offset, std::as_writable_bytes(std::span(c.rope_divisors)));
}

Status read_rope(const GgufFile& file, Entries& e, LlamaConfig& c) {
  // Old files name a factor but no type: it is linear.
  std::string type = e.has("rope.scaling.factor") ? "linear" : "none";
  if (e.has("rope.scaling.type")) {
    const Result<std::string> named = file.text(e.key("rope.scaling.type"));
    if (!named) return named.error();
    type = *named;
  }
  if (type != "linear" && type != "none")
    return file.fault("RoPE scaling " + type + " is not supported yet; supported: none, linear");
  if (type == "linear") c.rope_factor = e.positive("rope.scaling.factor");
  if (e.has("rope.freq_base")) c.rope_base = e.positive("rope.freq_base");
  if (e.status().ok() && c.rope_base < 1) e.refuse(e.key("rope.freq_base") + " is below 1");
  if (!e.status().ok()) return e.status();
  if (Status s = read_divisors(file, c); !s.ok()) return s;
  float least = 1;
  for (const float d : c.rope_divisors) {
    if (!(d > 0) || !std::isfinite(d))
      return file.fault("tensor rope_freqs.weight holds a value that is not positive");
    least = std::min(least, d);
  }
  if (c.context / (c.rope_factor * least) > kernels::kAngleMax)
    return file.fault("has RoPE scaling that turns the last position by more than 2^24");
  return {};
}

Status read_heads(Entries& e, LlamaConfig& c) {
  c.heads = e.integer("attention.head_count", kHeadsMax);
  c.kv_heads = e.integer_or("attention.head_count_kv", kHeadsMax, c.heads);
  if (!e.status().ok()) return e.status();
  if (c.heads % c.kv_heads != 0)
    e.refuse(e.key("attention.head_count") + " is " + std::to_string(c.heads) +
             ", no multiple of the " + std::to_string(c.kv_heads) + " key heads");
  if (!e.has("attention.key_length") && c.dim % c.heads != 0)
    e.refuse(e.key("embedding_length") + " is no multiple of the heads");
  c.head_dim = e.integer_or("attention.key_length", kHeadDimMax, c.dim / c.heads);
  if (e.integer_or("attention.value_length", kHeadDimMax, c.head_dim) != c.head_dim)
    e.refuse(e.key("attention.value_length") + " differs from the key length: not supported yet");
  if (c.head_dim > kHeadDimMax || uint64_t{c.heads} * c.head_dim > kWidthMax)
    e.refuse("heads of " + std::to_string(c.head_dim) + " values: the limit is " +
             std::to_string(kHeadDimMax));
  c.rotated = e.integer_or("rope.dimension_count", c.head_dim, c.head_dim);
  if (c.rotated % 2 != 0) e.refuse(e.key("rope.dimension_count") + " is odd");
  return e.status();
}

Status read_llama(const GgufFile& file, LlamaConfig& c) {
  if (Status s = check_entries(file, c.architecture); !s.ok()) return s;
  Entries e(file, c.architecture);
  c.layers = e.integer("block_count", kLayersMax);
  c.context = e.integer("context_length", kContextMax);
  c.dim = e.integer("embedding_length", kWidthMax);
  c.ffn = e.integer("feed_forward_length", kWidthMax);
  c.eps = static_cast<float>(e.positive("attention.layer_norm_rms_epsilon"));
  if (!e.status().ok()) return e.status();
  if (Status s = read_heads(e, c); !s.ok()) return s;
  if (Status s = read_rope(file, e, c); !s.ok()) return s;
  const GgufTensor* embedding = file.tensor("token_embd.weight");
  if (embedding == nullptr) return file.fault("tensor token_embd.weight is missing");
  if (embedding->rows() > kVocabMax)
    return file.fault("has a vocabulary of " + std::to_string(embedding->rows()) +
                      " tokens; the limit is " + std::to_string(kVocabMax));
  c.vocab = static_cast<uint32_t>(embedding->rows());
  c.tied = file.tensor("output.weight") == nullptr;
  if (e.has("vocab_size") && e.integer("vocab_size", kVocabMax) != c.vocab)
    e.refuse(e.key("vocab_size") + " differs from the " + std::to_string(c.vocab) +
             " rows of token_embd.weight");
  if (!e.status().ok()) return e.status();
  return check_tensors(file, c);
}

}  // namespace

Result<LlamaConfig> read_config(const GgufFile& file) {
  const Result<std::string> name = file.text("general.architecture");
  if (!name) return name.error();
  for (const Architecture& a : kArchitectures)
    if (a.name == *name) {
      LlamaConfig config;
      config.architecture = *name;
      if (Status s = a.read(file, config); !s.ok()) return s;
      return config;
    }
  return file.fault("architecture " + *name + " is not supported yet; supported: " + supported());
}

}  // namespace headrace::worker
