/* A hash map by address: linear probing, at most half full, so that a search ends soon.
 * Callers make room before a driver call, so that bookkeeping after the call cannot fail. */
#include "address_map.h"

#include <stdlib.h>

static size_t home_of(const weir_map *map, uint64_t address) { return (size_t)((address * 0x9e3779b97f4a7c15u) >> 32) & (map->room - 1); }

static weir_entry *place_of(const weir_map *map, uint64_t address) {
  size_t index = home_of(map, address);
  while (map->entries[index].address != 0 && map->entries[index].address != address) index = (index + 1) & (map->room - 1);
  return &map->entries[index];
}

int weir_map_ensure(weir_map *map, size_t more) {
  size_t room = map->room ? map->room : 64;
  while ((map->count + more) * 2 > room) room *= 2;
  if (room == map->room) return 1;
  weir_map grown = {calloc(room, sizeof *grown.entries), room, map->count};
  if (!grown.entries) return 0;
  for (size_t index = 0; index < map->room; index++) {
    if (map->entries[index].address != 0) *place_of(&grown, map->entries[index].address) = map->entries[index];
  }
  free(map->entries);
  *map = grown;
  return 1;
}

void weir_map_put(weir_map *map, uint64_t address, uint64_t value, uint64_t other) {
  *place_of(map, address) = (weir_entry){address, value, other};
  map->count++;
}

weir_entry *weir_map_find(const weir_map *map, uint64_t address) {
  if (map->room == 0) return NULL;
  weir_entry *entry = place_of(map, address);
  return entry->address == 0 ? NULL : entry;
}

void weir_map_remove(weir_map *map, uint64_t address) {
  weir_entry *entry = weir_map_find(map, address);
  if (!entry) return;
  size_t mask = map->room - 1;
  size_t hole = (size_t)(entry - map->entries);
  for (size_t index = (hole + 1) & mask; map->entries[index].address != 0; index = (index + 1) & mask) {
    /* An entry may move back into the hole unless its home lies behind the hole. */
    if (((index - home_of(map, map->entries[index].address)) & mask) < ((index - hole) & mask)) continue;
    map->entries[hole] = map->entries[index];
    hole = index;
  }
  map->entries[hole].address = 0;
  map->count--;
}

void weir_map_free(weir_map *map) {
  free(map->entries);
  *map = (weir_map){0};
}
