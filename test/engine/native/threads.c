/* Threads at work: `threads apart` gives each of two threads an engine of its own, `threads shared` lets four use one.
 * Every thread checks that no address it holds is given out twice. The sanitizer finds races. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ledger_driver.h"

#define HELD 200
#define ROUNDS 20000

typedef struct worker {
  pthread_t thread;
  weir_engine *engine;
  uint32_t seed;
  uint32_t stream;
  int wrong;
} worker;

static uint32_t next(uint32_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

static void *work(void *argument) {
  worker *self = argument;
  uint64_t held[HELD] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    uint32_t slot = next(&self->seed) % HELD;
    if (held[slot]) {
      self->wrong |= !weir_engine_free(self->engine, held[slot]);
      held[slot] = 0;
    } else {
      uint64_t bytes = 1 + (next(&self->seed) >> (next(&self->seed) % 24 + 4));
      held[slot] = weir_engine_malloc(self->engine, bytes, self->stream, 0);
    }
    if (round % 5000 == 4999) weir_engine_empty_cache(self->engine);
    if (round % 2000 == 1999) self->wrong |= weir_engine_check(self->engine, 2) != 0;
  }
  for (int slot = 0; slot < HELD; slot++) {
    if (held[slot]) self->wrong |= !weir_engine_free(self->engine, held[slot]);
  }
  return NULL;
}

int main(int count, char **arguments) {
  int shared = count > 1 && strcmp(arguments[1], "shared") == 0;
  int workers = shared ? 4 : 2;
  int engines = shared ? 1 : 2;
  ledger books[2];
  weir_engine *engine[2] = {0};
  worker all[4];
  int wrong = 0;
  for (int index = 0; index < engines; index++) {
    ledger_init(&books[index], NULL, 3ull << 30);
    weir_driver driver = ledger_driver(&books[index]);
    engine[index] = weir_engine_new(&driver);
    if (!engine[index]) return 2;
  }
  for (int index = 0; index < workers; index++) {
    all[index] = (worker){.engine = engine[shared ? 0 : index], .seed = 77u + (uint32_t)index, .stream = (uint32_t)index % 2};
    if (pthread_create(&all[index].thread, NULL, work, &all[index]) != 0) return 2;
  }
  for (int index = 0; index < workers; index++) {
    pthread_join(all[index].thread, NULL);
    wrong |= all[index].wrong;
  }
  for (int index = 0; index < engines; index++) {
    weir_engine_streams_idle(engine[index], weir_engine_latest_release(engine[index]));
    weir_engine_empty_cache(engine[index]);
    wrong |= weir_engine_check(engine[index], 3) != 0;
    wrong |= books[index].handles != 0 || books[index].mappings != 0 || books[index].reservations != 0;
    weir_engine_delete(engine[index]);
    ledger_destroy(&books[index]);
  }
  printf("%s\n", wrong ? "wrong" : "right");
  return wrong;
}
