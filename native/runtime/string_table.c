/* Strings with numbers: a hash table of their places. The area holds the only copy of each string. */
#include "string_table.h"

#include <stdlib.h>
#include <string.h>

struct interned {
  uint64_t hash;
  uint32_t at; /* position of its length in the area */
  uint32_t number; /* 0: empty */
};

static uint64_t hash_of(const char *text, size_t length) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t index = 0; index < length; index++) hash = (hash ^ (uint8_t)text[index]) * 0x100000001b3u;
  return hash ^ (hash >> 29);
}

/* The entry of a string, or the empty entry where it belongs. */
static struct interned *entry_of(const string_table *table, const char *text, uint32_t length, uint64_t hash) {
  for (uint32_t index = (uint32_t)hash & (table->room - 1);; index = (index + 1) & (table->room - 1)) {
    struct interned *entry = &table->entries[index];
    if (entry->number == 0) return entry;
    uint32_t known;
    memcpy(&known, table->area + entry->at, sizeof known);
    if (entry->hash == hash && known == length && memcmp(table->area + entry->at + sizeof known, text, length) == 0) return entry;
  }
}

static int enlarge(string_table *table) {
  if ((table->count + 1) * 2 <= table->room) return 1;
  uint32_t room = table->room ? table->room * 2 : 256;
  struct interned *entries = calloc(room, sizeof *entries);
  if (!entries) return 0;
  for (uint32_t index = 0; index < table->room; index++) {
    if (table->entries[index].number == 0) continue;
    uint32_t place = (uint32_t)table->entries[index].hash & (room - 1);
    while (entries[place].number != 0) place = (place + 1) & (room - 1);
    entries[place] = table->entries[index];
  }
  free(table->entries);
  table->entries = entries;
  table->room = room;
  return 1;
}

uint32_t strings_intern(string_table *table, const char *text, size_t length, uint32_t room) {
  uint64_t used = *table->used;
  if (length == 0 || length > room || !enlarge(table)) return 0;
  uint32_t stored = (uint32_t)length;
  uint64_t hash = hash_of(text, length);
  struct interned *entry = entry_of(table, text, stored, hash);
  if (entry->number != 0) return entry->number;
  if (used + sizeof stored + stored > room) return 0;
  memcpy(table->area + used, &stored, sizeof stored);
  memcpy(table->area + used + sizeof stored, text, stored);
  *entry = (struct interned){hash, (uint32_t)used, ++table->count};
  __atomic_store_n(table->used, used + sizeof stored + stored, __ATOMIC_RELEASE);
  return entry->number;
}

void strings_free(string_table *table) {
  free(table->entries);
  *table = (string_table){0};
}
