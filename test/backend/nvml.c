/* A management library with two GPUs, for tests without any. In bytes of 1, or of as many as NVML_UNIT says. With NVML_CHILDREN,
 * the memory belongs to the children of this process instead of itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int started;

static uint64_t unit(void) {
  const char *text = getenv("NVML_UNIT");
  return text ? strtoull(text, NULL, 10) : 1;
}

static uint32_t owner(void) {
  unsigned pid = (unsigned)getpid();
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/task/%u/children", pid, pid);
  FILE *file = getenv("NVML_CHILDREN") ? fopen(path, "r") : NULL;
  if (!file) return pid;
  if (fscanf(file, "%u", &pid) != 1) pid = 0;
  fclose(file);
  return pid;
}

int nvmlInit_v2(void) {
  started = 1;
  return 0;
}

int nvmlDeviceGetCount_v2(uint32_t *count) {
  *count = 2;
  return started ? 0 : 1;
}

int nvmlDeviceGetHandleByIndex_v2(uint32_t index, uint64_t *handle) {
  *handle = 0x7000 + index;
  return 0;
}

int nvmlDeviceGetUUID(uint64_t handle, char *text, uint32_t length) {
  snprintf(text, length, "GPU-%llu-abc", (unsigned long long)(handle - 0x7000));
  return 0;
}

int nvmlDeviceGetMemoryInfo(uint64_t handle, uint64_t *memory) {
  memory[0] = 1000 * unit();
  memory[1] = (handle == 0x7000 ? 300 : 900) * unit();
  memory[2] = memory[0] - memory[1];
  return handle < 0x7002 ? 0 : 2;
}

typedef struct {
  uint32_t pid;
  uint64_t bytes;
  uint32_t gpu_instance, compute_instance;
} process_info;

int nvmlDeviceGetComputeRunningProcesses_v3(uint64_t handle, uint32_t *count, process_info *found) {
  _Static_assert(sizeof(process_info) == 24, "as NVIDIA lays it out");
  if (*count < 2) return 7;
  found[0] = (process_info){owner(), 500 * unit(), 0, 0};
  found[1] = (process_info){99999, UINT64_MAX, 0, 0};
  *count = handle == 0x7000 ? 2 : 0;
  return 0;
}
