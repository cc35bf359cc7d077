#include "kernels/reference_device.h"

#include <chrono>

#include "kernels/account.h"

namespace headrace::kernels {
namespace {

class ReferenceDevice final : public Device {
 public:
  std::string name() const override { return "reference"; }
  bool quantizes() const override { return false; }
  KvType kv_type() const override { return KvType::kF32; }

  void run(const Embed& op) override { account(op); }
  void run(const RmsNorm& op) override { account(op); }
  void run(const QuantizeRows& op) override { account(op); }
  void run(const MatMul& op) override { account(op); }
  void run(const RopeAppendKv& op) override { account(op); }
  void run(const Attention& op) override { account(op); }
  void run(const SwiGlu& op) override { account(op); }
  void run(const Sample& op) override { account(op); }

  std::vector<OpAccount> take_accounts() override { return accounts_.take(); }

 private:
  template <class Op>
  void account(const Op& op) {
    const auto start = std::chrono::steady_clock::now();
    reference(op);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    accounts_.add(kernels::name(op), cost(op), took.count());
  }

  Accounts accounts_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

}  // namespace headrace::kernels
