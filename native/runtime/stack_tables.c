/* Call stacks in the ring. The reader is told of a string, frame or stack after it is there, and of what it refers to before it. */
#include "stack_tables.h"

#include <string.h>

/* Bits of the numbers in a key: all strings, frames and stacks that fit have smaller numbers. */
#define STRING_BITS 20
#define LINE_BITS 23
_Static_assert(WEIR_RING_FRAME_STRING_BYTES / 5 < 1u << STRING_BITS, "numbers of strings do not fit a key");
_Static_assert(2 * STRING_BITS + LINE_BITS < 64, "a frame does not fit a key");

static uint32_t at_most(uint32_t value, uint32_t most) { return value < most ? value : most; }

uint64_t stacks_bytes(uint32_t stacks) {
  if (stacks == 0) return 0;
  uint32_t frames = at_most(stacks, WEIR_RING_FRAMES);
  return (uint64_t)stacks * sizeof(weir_ring_stack) + (uint64_t)frames * sizeof(weir_ring_frame) + WEIR_RING_FRAME_STRING_BYTES;
}

void stacks_place(stack_tables *tables, weir_ring_header *ring, uint32_t at, uint32_t stacks) {
  ring->stacks_at = at;
  ring->stack_room = stacks;
  ring->frame_room = at_most(stacks, WEIR_RING_FRAMES);
  ring->frame_string_room = WEIR_RING_FRAME_STRING_BYTES;
  tables->ring = ring;
  tables->stacks = (void *)((char *)ring + at);
  tables->frames = (void *)(tables->stacks + ring->stack_room);
  tables->strings = (string_table){.area = (void *)(tables->frames + ring->frame_room), .used = &ring->frame_string_bytes};
}

/* The number of a text, or 0 for an empty one; -1 if there is no room. */
static int64_t string_of(stack_tables *tables, weir_text text) {
  if (text.bytes == 0) return 0;
  uint32_t length = at_most(text.bytes, WEIR_RING_FRAME_STRING_MOST);
  /* Not in the middle of a character of UTF-8. */
  while (length < text.bytes && length > 0 && ((unsigned char)text.text[length] & 0xc0) == 0x80) length--;
  uint32_t number = strings_intern(&tables->strings, text.text, length, tables->ring->frame_string_room);
  return number == 0 ? -1 : (int64_t)number;
}

static int64_t frame_of(stack_tables *tables, weir_text name, weir_text filename, int32_t line) {
  int64_t named = string_of(tables, name), filed = string_of(tables, filename);
  if (named < 0 || filed < 0) return -1;
  uint32_t shown = line < 0 || line >= 1 << LINE_BITS ? 0 : (uint32_t)line;
  uint64_t key = 1 + ((uint64_t)named << (STRING_BITS + LINE_BITS) | (uint64_t)filed << LINE_BITS | shown);
  const weir_entry *entry = weir_map_find(&tables->known_frames, key);
  if (entry) return (int64_t)entry->value;
  uint64_t count = tables->ring->frame_count;
  if (count >= tables->ring->frame_room || !weir_map_ensure(&tables->known_frames, 1)) return -1;
  tables->frames[count] = (weir_ring_frame){.name = (uint32_t)named, .filename = (uint32_t)filed, .line = (int32_t)shown};
  weir_map_put(&tables->known_frames, key, count, 0);
  __atomic_store_n(&tables->ring->frame_count, count + 1, __ATOMIC_RELEASE);
  return (int64_t)count;
}

int32_t stacks_add(stack_tables *tables, int32_t parent, weir_text name, weir_text filename, int32_t line) {
  uint64_t count = tables->ring->stack_count;
  if (parent < -1 || parent >= (int64_t)count) return -1;
  int64_t frame = frame_of(tables, name, filename, line);
  if (frame < 0) return -1;
  uint64_t key = 1 + ((uint64_t)(parent + 1) << 32 | (uint64_t)frame);
  const weir_entry *entry = weir_map_find(&tables->known_stacks, key);
  if (entry) return (int32_t)entry->value;
  if (count >= tables->ring->stack_room || !weir_map_ensure(&tables->known_stacks, 1)) return -1;
  tables->stacks[count] = (weir_ring_stack){.parent = parent, .frame = (uint32_t)frame};
  weir_map_put(&tables->known_stacks, key, count, 0);
  __atomic_store_n(&tables->ring->stack_count, count + 1, __ATOMIC_RELEASE);
  return (int32_t)count;
}

void stacks_free(stack_tables *tables) {
  strings_free(&tables->strings);
  weir_map_free(&tables->known_frames);
  weir_map_free(&tables->known_stacks);
  *tables = (stack_tables){0};
}
