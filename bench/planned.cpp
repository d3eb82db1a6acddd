// How long a request and its free take in the native engine, at planned places and without a plan.
// Prints nanoseconds per pair, of the fastest round, as JSON.
//
//   planned FILE ROUNDS    FILE: u32 requests, turns, operations, slots; u64 footprint; per request u64 size and `turns` u64
//                          offsets; per operation of a step u32 slot, u32 unused, u64 bytes (0 is a free)
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "weir_abi.h"
extern "C" {
#include "engine/caller.h"
}
#include "engine/weir_engine.h"

namespace {

constexpr int kWarm = 20, kMeasured = 200;

struct Operation {
  uint32_t slot, unused;
  uint64_t bytes;
};

struct Counter {
  uint64_t handle = 1, address = uint64_t{1} << 40, calls = 0;
};

int64_t create(void *context, uint64_t) {
  auto *counter = static_cast<Counter *>(context);
  counter->calls++;
  return static_cast<int64_t>(counter->handle++);
}
int64_t reserve(void *context, uint64_t bytes) {
  auto *counter = static_cast<Counter *>(context);
  uint64_t address = counter->address;
  counter->address += bytes;
  return static_cast<int64_t>(address);
}
int32_t count_one(void *context, uint64_t) { return static_cast<Counter *>(context)->calls++, 0; }
int32_t count_two(void *context, uint64_t, uint64_t) { return static_cast<Counter *>(context)->calls++, 0; }

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// What else the machine does only ever adds to it.
double fastest(const std::vector<double> &values) { return *std::min_element(values.begin(), values.end()); }

}  // namespace

int main(int count, char **arguments) {
  if (count < 3) return 2;
  FILE *file = std::fopen(arguments[1], "rb");
  uint32_t head[4];
  uint64_t footprint;
  if (!file || std::fread(head, sizeof head, 1, file) != 1 || std::fread(&footprint, sizeof footprint, 1, file) != 1) return 2;
  const uint32_t requests = head[0], turns = head[1];
  std::vector<weir_plan_request> plan(requests);
  std::vector<uint64_t> offsets(size_t{requests} * turns);
  for (uint32_t index = 0; index < requests; index++) {
    if (std::fread(&plan[index].size, 8, 1, file) != 1) return 2;
    plan[index].stream = 0;
    if (std::fread(&offsets[size_t{index} * turns], 8, turns, file) != turns) return 2;
  }
  std::vector<Operation> operations(head[2]);
  if (std::fread(operations.data(), sizeof(Operation), head[2], file) != head[2]) return 2;
  std::fclose(file);
  std::vector<double> times[2];
  uint64_t calls[2] = {0, 0}, hits = 0;
  for (int round = 0; round < std::atoi(arguments[2]); round++) {
    for (int planned = 0; planned < 2; planned++) {
      Counter counter;
      weir_driver driver{&counter, create, count_one, reserve, count_two, count_two, count_two, count_two, nullptr, nullptr, nullptr};
      weir_engine *engine = weir_engine_new(&driver);
      if (!engine) return 2;
      // As in the runtime, which has a lock of its own.
      engine_leave_locking_to_caller(engine);
      if (planned && !weir_engine_apply_preset(engine, WEIR_PRESET_PLANNED)) return 3;
      if (planned && !weir_engine_install_plan(engine, plan.data(), requests, turns, offsets.data(), footprint)) return 3;
      std::vector<uint64_t> held(head[3], 0);
      double began = 0;
      uint64_t before = 0;
      for (int step = 0; step < kWarm + kMeasured; step++) {
        if (step == kWarm) {
          began = seconds();
          before = counter.calls;
          hits = weir_engine_statistic(engine, WEIR_PLAN_STATISTIC_HITS);
        }
        for (const Operation &operation : operations) {
          uint64_t &address = held[operation.slot];
          if (operation.bytes) {
            address = weir_engine_malloc(engine, operation.bytes, 0, 0);
          } else if (address) {
            weir_engine_free(engine, address);
            address = 0;
          }
        }
      }
      times[planned].push_back((seconds() - began) * 2e9 / (static_cast<double>(operations.size()) * kMeasured));
      calls[planned] = counter.calls - before;
      hits = weir_engine_statistic(engine, WEIR_PLAN_STATISTIC_HITS) - hits;
      if (weir_engine_check(engine, 3) != 0) return 4;
      weir_engine_delete(engine);
    }
  }
  std::printf("{\"unplannedNs\": %.1f, \"plannedNs\": %.1f, \"unplannedCalls\": %.2f, \"plannedCalls\": %.2f, \"hitShare\": %.4f}\n",
              fastest(times[0]), fastest(times[1]), static_cast<double>(calls[0]) / kMeasured, static_cast<double>(calls[1]) / kMeasured,
              static_cast<double>(hits) / (static_cast<double>(requests) * kMeasured));
  return 0;
}
