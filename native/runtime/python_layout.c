/* Where CPython keeps the frames of a thread. Versions differ, so nothing is assumed but this: a thread leads to its innermost frame,
 * a frame to its code, its instruction and the frame before it. A layout counts only if it gives exactly the frames that CPython's
 * functions give. */
#define _GNU_SOURCE
#include "python_layout.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Words that are looked at in a thread state, in what leads to a frame, and in a frame. */
enum { THREAD_WORDS = 64, LEADING_WORDS = 4, FRAME_WORDS = 12 };
/* With fewer frames, a wrong layout could fit by chance. */
enum { LEAST_FRAMES = 3, MOST_FRAMES = 200 };
/* The instructions of code lie within the object. */
enum { MOST_CODE_HEADER = 1024 };

/* Newer versions mark pointers in their lowest bits. */
static uint64_t plain(uint64_t word) { return word & ~(uint64_t)7; }

/* Reads without a signal where nothing is mapped: the kernel refuses to copy from there into a pipe. */
static int pipe_ends[2];
static int read_words(uint64_t address, uint64_t *words, int count) {
  size_t bytes = (size_t)count * sizeof *words;
  if (address == 0 || address % 8 != 0) return 0;
  /* Not by write(), which checkers of memory look into first. */
  ssize_t written = syscall(SYS_write, pipe_ends[1], (const void *)(uintptr_t)address, bytes);
  /* What was copied before a page that is not mapped is taken out again. */
  return written > 0 && read(pipe_ends[0], words, (size_t)written) == written && (size_t)written == bytes;
}

static int is_shim(const python_layout *layout, const void *code) {
  int32_t count = __atomic_load_n(&layout->shim_count, __ATOMIC_ACQUIRE);
  for (int32_t index = 0; index < count; index++) {
    if (layout->shims[index] == code) return 1;
  }
  return 0;
}

/* Follows the frames from `address` on; 1 if they are those that are known. Keeps the words of each known frame. */
static int follows(python_layout *layout, uint64_t address, const python_frame *frames, int count, uint64_t (*kept)[FRAME_WORDS]) {
  int found = 0;
  layout->shim_count = 0;
  for (int step = 0; address != 0 && step < 4 * MOST_FRAMES; step++) {
    uint64_t words[FRAME_WORDS];
    if (!read_words(address, words, FRAME_WORDS)) return 0;
    void *code = (void *)(uintptr_t)plain(words[layout->frame_to_code / 8]);
    if (found < count && code == frames[found].code) {
      memcpy(kept[found++], words, sizeof words);
    } else if (!is_shim(layout, code)) {
      if (layout->shim_count == LAYOUT_MOST_SHIMS) return 0;
      layout->shims[layout->shim_count++] = code;
    }
    address = words[layout->frame_to_previous / 8];
  }
  return address == 0 && found == count;
}

/* The place of the instruction is the one whose distance from the code differs by the instruction only. */
static int find_instruction(python_layout *layout, const python_frame *frames, int count, uint64_t (*kept)[FRAME_WORDS]) {
  for (int word = 0; word < FRAME_WORDS; word++) {
    int64_t distance = (int64_t)(kept[0][word] - (uint64_t)(uintptr_t)frames[0].code) - frames[0].at;
    int index = 0;
    while (index < count && (int64_t)(kept[index][word] - (uint64_t)(uintptr_t)frames[index].code) - frames[index].at == distance) index++;
    if (index < count || distance <= 0 || distance > MOST_CODE_HEADER) continue;
    layout->frame_to_instruction = (uint32_t)word * 8;
    layout->code_to_instructions = distance;
    return 1;
  }
  return 0;
}

static int fits(python_layout *layout, uint64_t address, const python_frame *frames, int count, uint64_t (*kept)[FRAME_WORDS]) {
  uint64_t words[FRAME_WORDS];
  if (!read_words(address, words, FRAME_WORDS)) return 0;
  for (uint32_t code = 0; code < FRAME_WORDS; code++) {
    if (plain(words[code]) != (uint64_t)(uintptr_t)frames[0].code) continue;
    for (uint32_t previous = 0; previous < FRAME_WORDS; previous++) {
      layout->frame_to_code = code * 8;
      layout->frame_to_previous = previous * 8;
      if (previous != code && follows(layout, address, frames, count, kept) && find_instruction(layout, frames, count, kept)) return 1;
    }
  }
  return 0;
}

static void search(python_layout *layout, const void *thread, const python_frame *frames, int count) {
  static uint64_t kept[MOST_FRAMES][FRAME_WORDS]; /* called once, under the GIL */
  uint64_t words[THREAD_WORDS], leading[LEADING_WORDS];
  if (!read_words((uint64_t)(uintptr_t)thread, words, THREAD_WORDS)) return;
  for (int word = 0; word < THREAD_WORDS && !layout->is_found; word++) {
    layout->thread_to_first = (uint32_t)word * 8;
    layout->first_to_frame = -1;
    layout->is_found = fits(layout, words[word], frames, count, kept);
    if (layout->is_found || !read_words(words[word], leading, LEADING_WORDS)) continue;
    for (int next = 0; next < LEADING_WORDS && !layout->is_found; next++) {
      layout->first_to_frame = next * 8;
      layout->is_found = fits(layout, leading[next], frames, count, kept);
    }
  }
}

int layout_find(python_layout *layout, const void *thread, const python_frame *frames, int count) {
  int differ = 0;
  *layout = (python_layout){0};
  for (int index = 1; index < count; index++) differ |= frames[index].code != frames[0].code;
  if (!differ || count < LEAST_FRAMES || count > MOST_FRAMES || pipe2(pipe_ends, O_CLOEXEC) != 0) return 0;
  search(layout, thread, frames, count);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  return layout->is_found;
}

static void *pointer_at(const void *object, uint32_t offset) {
  void *found;
  memcpy(&found, (const char *)object + offset, sizeof found);
  return found;
}

int layout_walk(const python_layout *layout, const void *thread, python_frame *frames, int most) {
  int count = 0;
  const char *frame = pointer_at(thread, layout->thread_to_first);
  if (frame && layout->first_to_frame >= 0) frame = pointer_at(frame, (uint32_t)layout->first_to_frame);
  for (; frame; frame = pointer_at(frame, layout->frame_to_previous)) {
    void *code = (void *)(uintptr_t)plain((uint64_t)(uintptr_t)pointer_at(frame, layout->frame_to_code));
    if (is_shim(layout, code)) continue;
    if (count < most) {
      int64_t distance = (char *)pointer_at(frame, layout->frame_to_instruction) - (char *)code;
      frames[count] = (python_frame){code, (int32_t)(distance - layout->code_to_instructions)};
    }
    count++;
  }
  return count;
}
