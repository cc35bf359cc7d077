#pragma once

#include "protocol/messages.h"

namespace headrace::coordinator {

// The words between the Dispatcher and the mesh door, which owns the links to the workers.

// To the Dispatcher: a fresh link said who it is. The Dispatcher answers Welcome or Rejected.
struct WorkerJoined {
  WorkerId worker{};  // minted by the door, never used twice in one coordinator life
  to_coordinator::Register hello;
};

// To the Dispatcher: a later frame of that worker. Never a Register.
struct FromWorker {
  WorkerId worker{};
  ToCoordinator message;
};

// To the Dispatcher: the link is closed. Not sent for a worker that the Dispatcher dropped.
struct WorkerLost {
  WorkerId worker{};
  Status why;
};

// Whoever takes what workers say: the Dispatcher.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  virtual void on(WorkerJoined message) = 0;
  virtual void on(FromWorker message) = 0;
  virtual void on(WorkerLost message) = 0;
};

// To the door; for a worker that is gone: dropped.
struct SendToWorker {
  WorkerId worker{};
  ToWorker message;
};

// To the door: let what was sent go out, then close the link.
struct DropWorker {
  WorkerId worker{};
};

class MeshPort {
 public:
  virtual ~MeshPort() = default;
  virtual void on(SendToWorker message) = 0;
  virtual void on(DropWorker message) = 0;
};

}  // namespace headrace::coordinator
