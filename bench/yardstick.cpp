// The yardstick for the native engine: best fit the way C++ programmers write it, and PyTorch does, with std::set,
// std::unordered_map and new/delete. Runs the same operations on both and prints nanoseconds per operation as JSON.
//
//   yardstick FILE ROUNDS WARM [alone]   FILE: u32 operations, u32 slots, then per operation u32 slot, u32 stream, u64 bytes
//                                        (0 is a free); the first WARM operations are not measured; alone: the engine only
//   yardstick pair BYTES ROUNDS          a request and a free of so many bytes, with few other blocks
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/weir_engine.h"

namespace {

constexpr uint64_t kUnit = 512, kSmall = 1 << 20, kSlab = 2 << 20;

struct Block {
  uint64_t address, size;
  Block *prev = nullptr, *next = nullptr;
  bool free = true, small = false;
};

struct BySize {
  bool operator()(const Block *a, const Block *b) const { return a->size != b->size ? a->size < b->size : a->address < b->address; }
};

// One stream, small and large requests apart, each in one growing range: the engine's fast path and nothing else.
class SetAllocator {
 public:
  ~SetAllocator() {
    for (auto &pool : pools_) {
      for (Block *block = pool.first; block;) {
        Block *next = block->next;
        delete block;
        block = next;
      }
    }
  }

  uint64_t malloc(uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    bool small = bytes <= kSmall;
    uint64_t size = (std::max<uint64_t>(bytes, 1) + kUnit - 1) & ~(kUnit - 1);
    Pool &pool = pools_[small];
    Block key{0, size};
    auto found = pool.free.lower_bound(&key);
    Block *block = found != pool.free.end() ? *found : grow(pool, size, small);
    if (found != pool.free.end()) pool.free.erase(found);
    if (block->size > size) {
      Block *rest = new Block{block->address + size, block->size - size};
      rest->small = small;
      rest->prev = block;
      rest->next = block->next;
      if (rest->next) rest->next->prev = rest;
      else pool.last = rest;
      block->next = rest;
      block->size = size;
      pool.free.insert(rest);
    }
    block->free = false;
    live_[block->address] = block;
    return block->address;
  }

  void free(uint64_t address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = live_.find(address);
    Block *block = found->second;
    live_.erase(found);
    Pool &pool = pools_[block->small];
    block->free = true;
    if (Block *next = block->next; next && next->free) absorb(pool, block, next);
    if (Block *prev = block->prev; prev && prev->free) {
      pool.free.erase(prev);
      prev->size += block->size;
      prev->next = block->next;
      if (block->next) block->next->prev = prev;
      else pool.last = prev;
      delete block;
      block = prev;
    }
    pool.free.insert(block);
  }

 private:
  struct Pool {
    std::set<Block *, BySize> free;
    Block *first = nullptr, *last = nullptr;
    uint64_t end = 0;
  };

  static void absorb(Pool &pool, Block *block, Block *next) {
    pool.free.erase(next);
    block->size += next->size;
    block->next = next->next;
    if (next->next) next->next->prev = block;
    else pool.last = block;
    delete next;
  }

  // A block of at least `size` at the pool's end, in no set.
  Block *grow(Pool &pool, uint64_t size, bool small) {
    if (pool.end == 0) pool.end = small ? uint64_t{1} << 50 : uint64_t{1} << 40;
    Block *last = pool.last;
    uint64_t have = last && last->free ? last->size : 0;
    uint64_t bytes = (size - have + kSlab - 1) & ~(kSlab - 1);
    if (have) {
      pool.free.erase(last);
      last->size += bytes;
    } else {
      Block *block = new Block{pool.end, bytes};
      block->small = small;
      block->prev = last;
      if (last) last->next = block;
      else pool.first = block;
      pool.last = last = block;
    }
    pool.end += bytes;
    return last;
  }

  std::mutex mutex_;
  Pool pools_[2];
  std::unordered_map<uint64_t, Block *> live_;
};

struct Operation {
  uint32_t slot, stream;
  uint64_t bytes;
};

struct Counter {
  uint64_t handle = 1, address = uint64_t{1} << 40;
};

int64_t create(void *context, uint64_t) { return static_cast<int64_t>(static_cast<Counter *>(context)->handle++); }
int64_t reserve(void *context, uint64_t bytes) {
  auto *counter = static_cast<Counter *>(context);
  uint64_t address = counter->address;
  counter->address += bytes;
  return static_cast<int64_t>(address);
}
int32_t ignore_one(void *, uint64_t) { return 0; }
int32_t ignore_two(void *, uint64_t, uint64_t) { return 0; }

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The whole trace on a fresh allocator; nanoseconds per operation of its last `measured` part.
template <typename Malloc, typename Free>
double run(const std::vector<Operation> &operations, uint32_t slots, size_t warm, Malloc malloc_, Free free_) {
  std::vector<uint64_t> held(slots, 0);
  double began = seconds();
  for (size_t index = 0; index < operations.size(); index++) {
    if (index == warm) began = seconds();
    const Operation &operation = operations[index];
    if (operation.bytes) held[operation.slot] = malloc_(operation);
    else if (held[operation.slot]) free_(held[operation.slot]);
  }
  return (seconds() - began) * 1e9 / static_cast<double>(operations.size() - warm);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

weir_engine *new_engine(Counter *counter) {
  weir_driver driver{counter, create, ignore_one, reserve, ignore_two, ignore_two, ignore_two, ignore_two};
  return weir_engine_new(&driver);
}

struct Pair {
  double at_once, in_turn;
};

// Nanoseconds for a request and a free: of the same block at once, and in turn of kHeld blocks with others between them.
template <typename Malloc, typename Free>
Pair time_pair(uint64_t bytes, int rounds, Malloc malloc_, Free free_) {
  constexpr int kHeld = 32, kPairs = 200000;
  uint64_t held[kHeld];
  for (uint64_t &address : held) {
    address = malloc_(bytes);
    malloc_(bytes);
  }
  std::vector<double> at_once, in_turn;
  for (int round = 0; round < rounds; round++) {
    double began = seconds();
    for (int pair = 0; pair < kPairs; pair++) free_(malloc_(bytes));
    at_once.push_back((seconds() - began) * 1e9 / kPairs);
    began = seconds();
    for (int pair = 0; pair < kPairs; pair++) {
      uint64_t &address = held[pair % kHeld];
      free_(address);
      address = malloc_(bytes);
    }
    in_turn.push_back((seconds() - began) * 1e9 / kPairs);
  }
  return {median(at_once), median(in_turn)};
}

int compare_pairs(uint64_t bytes, int rounds) {
  SetAllocator allocator;
  Pair set =
      time_pair(bytes, rounds, [&](uint64_t size) { return allocator.malloc(size); }, [&](uint64_t address) { allocator.free(address); });
  Counter counter;
  weir_engine *weir = new_engine(&counter);
  if (!weir) return 2;
  Pair engine = time_pair(
      bytes, rounds, [&](uint64_t size) { return weir_engine_malloc(weir, size, 0, 0); },
      [&](uint64_t address) { weir_engine_free(weir, address); });
  weir_engine_delete(weir);
  std::printf("{\"engineAtOnceNs\": %.1f, \"engineInTurnNs\": %.1f, \"setAtOnceNs\": %.1f, \"setInTurnNs\": %.1f}\n", engine.at_once,
              engine.in_turn, set.at_once, set.in_turn);
  return 0;
}

}  // namespace

int main(int count, char **arguments) {
  if (count < 4) return 2;
  if (std::strcmp(arguments[1], "pair") == 0) return compare_pairs(std::strtoull(arguments[2], nullptr, 10), std::atoi(arguments[3]));
  FILE *file = std::fopen(arguments[1], "rb");
  uint32_t head[2];
  if (!file || std::fread(head, sizeof head, 1, file) != 1) return 2;
  std::vector<Operation> operations(head[0]);
  if (std::fread(operations.data(), sizeof(Operation), head[0], file) != head[0]) return 2;
  std::fclose(file);
  int rounds = std::atoi(arguments[2]);
  size_t warm = static_cast<size_t>(std::atoll(arguments[3]));
  // The engine alone, for counting its instructions.
  bool alone = count > 4;
  std::vector<double> set, engine;
  for (int round = 0; round < rounds; round++) {
    if (!alone) {
      SetAllocator allocator;
      set.push_back(run(
          operations, head[1], warm, [&](const Operation &operation) { return allocator.malloc(operation.bytes); },
          [&](uint64_t address) { allocator.free(address); }));
    }
    Counter counter;
    weir_engine *weir = new_engine(&counter);
    if (!weir) return 2;
    engine.push_back(run(
        operations, head[1], warm,
        [&](const Operation &operation) { return weir_engine_malloc(weir, operation.bytes, operation.stream, 0); },
        [&](uint64_t address) { weir_engine_free(weir, address); }));
    weir_engine_delete(weir);
  }
  std::printf("{\"setNs\": %.1f, \"engineNs\": %.1f}\n", alone ? 0 : median(set), median(engine));
  return 0;
}
