/* Stands in for the compiled adapter (native/torch/options.h) in tests without a GPU: the same engine, recorder and rings, on host
 * memory. Programs take memory by standin_allocate instead of PyTorch's tensors. One GPU, one stream. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/call_stacks.h"
#include "runtime/python_frames.h"
#include "runtime/weir_runtime.h"
#include "testing/weir_testing.h"
#include "torch/options.h"

#define MIB (1ull << 20)
#define TOTAL (1024 * MIB)

WEIR_TORCH_EXPORT uint64_t standin_allocate(uint64_t bytes);
WEIR_TORCH_EXPORT int standin_free(uint64_t address);
/* For a thread without the GIL: a request, then as many more while another thread is in standin_hold with the GIL. */
WEIR_TORCH_EXPORT void standin_repeat(uint64_t bytes, int count);
/* Whether that thread has made its first request. */
WEIR_TORCH_EXPORT int standin_has_begun(void);
/* Lets it go on; 1 if it has ended within so many milliseconds. */
WEIR_TORCH_EXPORT int standin_hold(int milliseconds);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int is_installed;
static weir_torch_options given;
static char allocator[64], directory[4096], version[64];
static weir_device *device;
static weir_recorder *recorder;
static weir_stacks *stacks;
static int (*relief)(int device, uint64_t bytes);

static void in_child(void) {
  pthread_mutex_init(&mutex, NULL);
  if (recorder) weir_recorder_forget(recorder);
  recorder = NULL;
  device = NULL; /* another thread of the parent may have held its lock */
  weir_stacks_forked(stacks);
}

static void at_end(void) {
  if (recorder) weir_recorder_finish(recorder);
}

int weir_torch_install(const weir_torch_options *options, char *why, size_t room) {
  const char *sentence = options->digest != WEIR_ABI_DIGEST ? "the Python and the compiled part of Weir are of different versions"
                         : is_installed                     ? "Weir is already in place"
                                                            : NULL;
  if (sentence) {
    snprintf(why, room, "%s", sentence);
    return 1;
  }
  given = *options;
  snprintf(allocator, sizeof allocator, "%s", options->allocator);
  snprintf(directory, sizeof directory, "%s", options->directory ? options->directory : "");
  snprintf(version, sizeof version, "%s", options->torch_version);
  is_installed = 1;
  char reason[256];
  if (options->stacks != WEIR_TORCH_STACKS_NONE && directory[0]) {
    stacks = weir_stacks_new(options->stacks == WEIR_TORCH_STACKS_ALL, reason, sizeof reason);
    if (stacks && getenv("STANDIN_FRAMES")) python_forget_layout();
    if (!stacks) snprintf(why, room, "call stacks are not recorded: %s", reason);
  }
  pthread_atfork(NULL, NULL, in_child);
  atexit(at_end);
  return 0;
}

/* As PyTorch's allocator does: the first request starts everything. */
static int begin(void) {
  char why[256];
  if (device) return 1;
  weir_backend *backend = weir_host_backend(TOTAL, why, sizeof why);
  if (!backend) return 0;
  if (directory[0] && !recorder)
    recorder = weir_recorder_open_with_stacks(directory, allocator, version, given.ring_rows, stacks ? WEIR_RING_STACKS : 0);
  if (directory[0] && !recorder) fprintf(stderr, "standin: no ring in %s\n", directory);
  weir_device_options options = {.lend = (int32_t)given.lend,
                                 .fine = (int32_t)given.fine,
                                 .planned = (int32_t)given.planned,
                                 .limit = given.limit,
                                 .recorder = recorder};
  device = weir_device_new(backend, &options);
  return device != NULL;
}

static uint64_t serve(uint64_t bytes) {
  weir_allocation block = {0};
  weir_shortage shortage;
  for (int tries = 0; tries < 2; tries++) {
    if (weir_device_allocate(device, bytes, 0, &block, &shortage)) return block.address;
    if (!relief || !relief(0, bytes)) break;
  }
  weir_device_failed(device, &shortage, 0);
  return 0;
}

/* As the real adapter: the stack is taken before any lock. */
uint64_t standin_allocate(uint64_t bytes) {
  static const weir_autograd nothing;
  pthread_mutex_lock(&mutex);
  int got = is_installed && begin();
  pthread_mutex_unlock(&mutex);
  if (!got) return 0;
  int32_t stack = stacks && recorder && bytes >= given.stacks_from ? weir_stacks_capture(stacks, recorder, &nothing) : -1;
  int32_t before = weir_recorder_hold_stack(stack);
  uint64_t address = serve(bytes);
  weir_recorder_hold_stack(before);
  return address;
}

static _Atomic int has_begun, may_go_on, has_ended;

void standin_repeat(uint64_t bytes, int count) {
  standin_free(standin_allocate(bytes));
  has_begun = 1;
  while (!may_go_on) usleep(100);
  for (int index = 0; index < count; index++) standin_free(standin_allocate(bytes));
  has_ended = 1;
}

int standin_has_begun(void) { return has_begun; }

int standin_hold(int milliseconds) {
  may_go_on = 1;
  for (int waited = 0; !has_ended && waited < milliseconds; waited++) usleep(1000);
  return has_ended;
}

int standin_free(uint64_t address) {
  weir_allocation freed;
  return weir_device_free(device, address, &freed);
}

void weir_torch_mark(const char *name) {
  if (!recorder) return;
  weir_event event = {.kind = WEIR_MARK, .stack = -1, .pool = -1, .fields = 1};
  event.stream = weir_recorder_stream(recorder, 0, 0);
  event.detail = (int32_t)weir_recorder_string(recorder, name);
  weir_recorder_put(recorder, event);
}

void weir_torch_categories(int index, const uint64_t *addresses, const uint8_t *categories, uint32_t count) {
  if (!recorder || index != 0) return;
  weir_event event = {.kind = WEIR_CATEGORY, .stack = -1, .pool = -1, .fields = 1};
  event.stream = weir_recorder_stream(recorder, 0, 0);
  for (uint32_t at = 0; at < count; at++) {
    event.address = addresses[at];
    event.detail = categories[at];
    weir_recorder_put(recorder, event);
  }
}

void weir_torch_operator(const char *name, int index, double microseconds, const uint64_t *addresses, const uint8_t *writes,
                         uint32_t count) {
  (void)name, (void)index, (void)microseconds, (void)addresses, (void)writes, (void)count;
}

int weir_torch_gauges(int index, weir_gauges *gauges) {
  if (!device || index != 0) return 0;
  *gauges = weir_device_gauges(device);
  return 1;
}

void weir_torch_swapped(int index, uint64_t out, uint64_t in, uint64_t stalls, uint64_t stall_ns) {
  if (!recorder || index != 0) return;
  weir_gauges *levels = weir_recorder_gauges(recorder, 0);
  levels->swapped_out = out;
  levels->swapped_in = in;
  levels->swap_stalls = stalls;
  levels->swap_stall_ns = stall_ns;
}

void weir_torch_steps(uint64_t steps, int swap_settled) {
  if (!recorder) return;
  weir_recorder_gauges(recorder, 0)->steps = steps;
  weir_recorder_gauges(recorder, 0)->swap_settled = swap_settled != 0;
}

void weir_torch_on_shortage(int (*relieve)(int device, uint64_t bytes)) { relief = relieve; }
int weir_torch_expandable(void) { return 0; }
void weir_torch_attempt(int attempting) { (void)attempting; }
uint32_t weir_torch_check(uint32_t level) { return device ? weir_device_check(device, level) : 0; }
void *weir_torch_plain_alloc(ptrdiff_t bytes, int index, void *stream) { return (void)index, (void)stream, malloc((size_t)bytes); }
void weir_torch_plain_free(void *ptr, ptrdiff_t bytes, int index, void *stream) { (void)bytes, (void)index, (void)stream, free(ptr); }
