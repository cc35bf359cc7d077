#pragma once

#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace headrace::worker {

// A small GGUF file under construction: a good model of one layer, whose entries and tensors a test
// may change, add or remove before it is written.
class GgufBuilder {
 public:
  GgufBuilder() {
    text("general.architecture", "llama");
    integer("llama.block_count", 1);
    integer("llama.context_length", 64);
    integer("llama.embedding_length", kDim);
    integer("llama.feed_forward_length", kFfn);
    integer("llama.attention.head_count", 2);
    integer("llama.attention.head_count_kv", 1);
    number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    text("tokenizer.ggml.model", "gpt2");
    text("tokenizer.ggml.pre", "gpt-2");
    texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>"});
    texts("tokenizer.ggml.merges", {"a b"});
    integer("tokenizer.ggml.eos_token_id", 3);
    tensor("token_embd.weight", {kDim, 4});
    tensor("output_norm.weight", {kDim});
    tensor("blk.0.attn_norm.weight", {kDim});
    tensor("blk.0.attn_q.weight", {kDim, kDim});
    tensor("blk.0.attn_k.weight", {kDim, kDim / 2});
    tensor("blk.0.attn_v.weight", {kDim, kDim / 2});
    tensor("blk.0.attn_output.weight", {kDim, kDim});
    tensor("blk.0.ffn_norm.weight", {kDim});
    tensor("blk.0.ffn_gate.weight", {kDim, kFfn});
    tensor("blk.0.ffn_up.weight", {kDim, kFfn});
    tensor("blk.0.ffn_down.weight", {kFfn, kDim});
  }

  static constexpr uint64_t kDim = 32, kFfn = 64;

  void integer(const std::string& key, uint32_t v) { entries_[key] = word(4) + word(v); }
  void signed_integer(const std::string& key, int32_t v) {
    entries_[key] = word(5) + word(static_cast<uint32_t>(v));
  }
  void number(const std::string& key, float v) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    entries_[key] = word(6) + word(bits);
  }
  void flag(const std::string& key, bool v) {
    entries_[key] = word(7) + std::string(1, v ? '\1' : '\0');
  }
  void text(const std::string& key, const std::string& v) { entries_[key] = word(8) + string(v); }
  void texts(const std::string& key, const std::vector<std::string>& v) {
    std::string out = word(9) + word(8) + wide(v.size());
    for (const auto& s : v) out += string(s);
    entries_[key] = out;
  }
  void integers(const std::string& key, const std::vector<int32_t>& v) {
    std::string out = word(9) + word(5) + wide(v.size());
    for (const int32_t i : v) out += word(static_cast<uint32_t>(i));
    entries_[key] = out;
  }
  void erase(const std::string& key) { entries_.erase(key); }

  // Floats that repeat `fill`; `type` 0 = F32, 1 = F16.
  void tensor(const std::string& name, std::vector<uint64_t> dims, float fill = 0.5f,
              uint32_t type = 0) {
    uint64_t n = 1;
    for (const uint64_t d : dims) n *= d;
    std::string data;
    for (uint64_t i = 0; i < n; i++)
      data.append(reinterpret_cast<const char*>(&fill), type == 0 ? 4 : 2);
    tensors_[name] = {std::move(dims), type, std::move(data)};
  }
  void erase_tensor(const std::string& name) { tensors_.erase(name); }

  std::string bytes() const {
    std::string head = "GGUF" + word(3) + wide(tensors_.size()) + wide(entries_.size()), data;
    for (const auto& [key, value] : entries_) head += string(key) + value;
    for (const auto& [name, t] : tensors_) {
      head += string(name) + word(static_cast<uint32_t>(t.dims.size()));
      for (const uint64_t d : t.dims) head += wide(d);
      head += word(t.type) + wide(data.size());
      data += t.data;
      data.resize((data.size() + 31) / 32 * 32);
    }
    head.resize((head.size() + 31) / 32 * 32);
    return head + data;
  }

 private:
  struct Content {
    std::vector<uint64_t> dims;
    uint32_t type;
    std::string data;
  };

  static std::string word(uint32_t v) { return {reinterpret_cast<const char*>(&v), 4}; }
  static std::string wide(uint64_t v) { return {reinterpret_cast<const char*>(&v), 8}; }
  static std::string string(const std::string& s) { return wide(s.size()) + s; }

  std::map<std::string, std::string> entries_;
  std::map<std::string, Content> tensors_;
};

// A file that goes when the test ends.
class TempFile {
 public:
  explicit TempFile(const std::string& bytes, const std::string& suffix = ".gguf")
      : path_(
            std::filesystem::temp_directory_path() /
            ("headrace-" + std::to_string(getpid()) + "-" + std::to_string(counter()++) + suffix)) {
    write(bytes);
  }
  ~TempFile() { std::filesystem::remove(path_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  void write(const std::string& bytes) {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  // Changes one byte in place.
  void patch(size_t at, char value) {
    std::fstream out(path_, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(at));
    out.put(value);
  }
  std::string path() const { return path_.string(); }

 private:
  static int& counter() {
    static int n = 0;
    return n;
  }
  std::filesystem::path path_;
};

}  // namespace headrace::worker
