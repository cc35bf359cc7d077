#pragma once

#include <driver_types.h>

// Small programs for the host side, each with its one mistake as a switch: true is the good twin.
// They see the toolkit's headers only and also link against the real libcudart.
namespace headrace::simt::programs {

// Whether the bytes at the end are the right ones.
bool hand_over(bool with_event);             // from a stream to another
bool reuse_source(bool after_wait);          // of a copy, in pinned memory
bool read_result(bool after_wait);           // in pinned memory
bool join_in_graph(bool before_the_reader);  // a side stream's work, captured
bool use_fresh_memory(bool with_event);      // of cudaMallocAsync on another stream

cudaError_t copy_whole(bool exactly);  // or one byte more
cudaError_t set_on_stream(bool own);   // or on stream 0
int read_on_host(bool copied);         // or through the device's pointer

}  // namespace headrace::simt::programs
