#include "worker/saturation_meter.h"

namespace headrace::worker {

SaturationMeter::SaturationMeter(TimeModel model, Role role)
    : model_(std::move(model)), role_(role) {}
void SaturationMeter::step(const StepReport&) {}
void SaturationMeter::sweep(const WorkerGauges&, double) {}

}  // namespace headrace::worker
