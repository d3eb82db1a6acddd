/* The books of a backend. Nothing here calls a driver.
 * Numbers of handles are used again, so that arrays by handle stay small. */
#include "books.h"

#include <stdlib.h>

int weir_books_ensure_handle(weir_books *books) {
  if (books->spare_count > 0 || books->handle_count < books->handle_room) return 1;
  size_t room = books->handle_room ? books->handle_room * 2 : 256;
  weir_held *handles = realloc(books->handles, room * sizeof *handles);
  if (handles) books->handles = handles;
  uint64_t *spare = realloc(books->spare, room * sizeof *spare);
  if (spare) books->spare = spare;
  if (!handles || !spare) return 0;
  books->handle_room = room;
  return 1;
}

int64_t weir_books_add_handle(weir_books *books, uint64_t value, uint64_t bytes) {
  size_t number = books->spare_count > 0 ? (size_t)books->spare[--books->spare_count] : books->handle_count++;
  books->handles[number] = (weir_held){.value = value, .bytes = bytes};
  books->used += bytes;
  return (int64_t)number;
}

weir_held *weir_books_handle(weir_books *books, uint64_t handle) {
  return handle < books->handle_count && books->handles[handle].bytes != 0 ? &books->handles[handle] : NULL;
}

void weir_books_drop_handle(weir_books *books, uint64_t handle) {
  books->used -= books->handles[handle].bytes;
  books->handles[handle].bytes = 0;
  books->spare[books->spare_count++] = handle;
}

int weir_books_may_map(weir_books *books, uint64_t address, uint64_t handle) {
  return weir_books_handle(books, handle) && !weir_map_find(&books->mappings, address) && weir_map_ensure(&books->mappings, 1);
}

void weir_books_map(weir_books *books, uint64_t address, uint64_t handle) {
  weir_map_put(&books->mappings, address, handle, books->handles[handle].bytes);
  books->handles[handle].mappings++;
}

int weir_books_tile(const weir_books *books, uint64_t address, uint64_t bytes) {
  uint64_t end = address + bytes;
  while (address < end) {
    const weir_entry *entry = weir_map_find(&books->mappings, address);
    if (!entry) return 0;
    address += entry->other;
  }
  return bytes != 0 && address == end;
}

void weir_books_unmap(weir_books *books, uint64_t address, uint64_t bytes) {
  uint64_t end = address + bytes;
  while (address < end) {
    const weir_entry *entry = weir_map_find(&books->mappings, address);
    uint64_t next = address + entry->other;
    books->handles[entry->value].mappings--;
    weir_map_remove(&books->mappings, address);
    address = next;
  }
}

const weir_entry *weir_books_around(const weir_books *books, uint64_t address, uint64_t unit) {
  for (uint64_t at = address / unit * unit; at != 0; at -= unit) {
    const weir_entry *entry = weir_map_find(&books->mappings, at);
    if (entry) return address - at < entry->other ? entry : NULL;
    if (weir_map_find(&books->reservations, at)) return NULL;
  }
  return NULL;
}

int weir_books_ensure_reservation(weir_books *books) { return weir_map_ensure(&books->reservations, 1); }

void weir_books_reserve(weir_books *books, uint64_t address, uint64_t bytes) { weir_map_put(&books->reservations, address, bytes, 0); }

int weir_books_is_reserved(const weir_books *books, uint64_t address, uint64_t bytes) {
  const weir_entry *entry = weir_map_find(&books->reservations, address);
  return entry && entry->value == bytes;
}

void weir_books_unreserve(weir_books *books, uint64_t address) { weir_map_remove(&books->reservations, address); }

void weir_books_free(weir_books *books) {
  free(books->handles);
  free(books->spare);
  weir_map_free(&books->mappings);
  weir_map_free(&books->reservations);
  *books = (weir_books){0};
}
