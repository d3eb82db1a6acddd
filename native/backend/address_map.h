/* A hash map from an address (never 0) to two numbers. Open addressing; removal moves later entries back.
 * Not safe for several threads at once. */
#ifndef WEIR_ADDRESS_MAP_H
#define WEIR_ADDRESS_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct weir_entry {
  uint64_t address; /* 0: empty */
  uint64_t value;
  uint64_t other;
} weir_entry;

typedef struct weir_map {
  weir_entry *entries;
  size_t room; /* a power of two, or 0 */
  size_t count;
} weir_map;

/* Makes room for `more` entries; 0 if there is no memory. */
int weir_map_ensure(weir_map *map, size_t more);
/* Needs weir_map_ensure before. The address must not be in the map yet. */
void weir_map_put(weir_map *map, uint64_t address, uint64_t value, uint64_t other);
/* The entry, valid until the next change; NULL if there is none. */
weir_entry *weir_map_find(const weir_map *map, uint64_t address);
void weir_map_remove(weir_map *map, uint64_t address);
void weir_map_free(weir_map *map);

#endif
