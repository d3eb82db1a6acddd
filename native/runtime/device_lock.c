/* The lock of a device, for the case that more than one thread wants it: see device_lock.h. */
#define _GNU_SOURCE
#include "device_lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Pauses before a thread sleeps, and the most between two looks. Looking too often would slow down the thread that works. */
enum { PAUSES = 1024, PAUSES_AT_ONCE = 32 };

static void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void device_lock_slowly(device_mutex *lock) {
  for (uint32_t paused = 0, at_once = 1; paused < PAUSES; paused += at_once) {
    for (uint32_t count = 0; count < at_once; count++) rest();
    if (__atomic_load_n(&lock->state, __ATOMIC_RELAXED) == 0 && device_try_lock(lock)) return;
    if (at_once < PAUSES_AT_ONCE) at_once *= 2;
  }
  /* Other threads may sleep too. So the state stays 2, and this thread wakes one of them when it unlocks. */
  while (__atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE) != 0) {
    syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
  }
}

void device_wake(device_mutex *lock) { syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

void device_sleep(uint32_t *word, uint32_t value) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0); }

void device_wake_all(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }
