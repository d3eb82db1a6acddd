/* The lock of a device. A request holds it for a tenth of a microsecond, a driver call for milliseconds. So a waiting thread
 * spins for some ten microseconds before it sleeps. Sleeping and waking take that long by themselves, much longer inside a
 * virtual machine, and the waking thread pays too. */
#ifndef WEIR_DEVICE_LOCK_H
#define WEIR_DEVICE_LOCK_H

#include <stdint.h>

typedef struct device_mutex {
  uint32_t state; /* 0: free, 1: held, 2: held, and threads may sleep */
} device_mutex;

static inline int device_try_lock(device_mutex *lock) {
  uint32_t free = 0;
  return __atomic_compare_exchange_n(&lock->state, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* device_lock_slowly: another thread holds the lock. device_wake: a thread may sleep. */
void device_lock_slowly(device_mutex *lock);
void device_wake(device_mutex *lock);

/* Sleeps until the word is no longer `value`, or a little shorter. device_wake_all: the word has changed. */
void device_sleep(uint32_t *word, uint32_t value);
void device_wake_all(uint32_t *word);

static inline void device_lock(device_mutex *lock) {
  if (__builtin_expect(!device_try_lock(lock), 0)) device_lock_slowly(lock);
}

static inline void device_unlock(device_mutex *lock) {
  if (__builtin_expect(__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2, 0)) device_wake(lock);
}

#endif
