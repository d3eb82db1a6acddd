/* What a backend holds: handles by number, mappings and reservations by address. Drivers are lenient where the engine must
 * be told of a mistake (unmapping what is not mapped succeeds on CUDA), so every call is checked against the books first. */
#ifndef WEIR_BOOKS_H
#define WEIR_BOOKS_H

#include "address_map.h"

typedef struct weir_held {
  uint64_t value; /* the driver's name for it */
  uint64_t bytes; /* 0: no such handle */
  uint64_t mappings;
  uint64_t shared; /* 0, or what tells it from all others that were shared */
  int32_t file;    /* where it is shared: the open file that stands for it */
} weir_held;

typedef struct weir_books {
  weir_held *handles;
  size_t handle_count, handle_room;
  uint64_t *spare; /* numbers of released handles */
  size_t spare_count;
  uint64_t used;
  weir_map mappings;     /* address -> handle, bytes */
  weir_map reservations; /* address -> bytes */
} weir_books;

/* Each `ensure` before the driver is asked, each change after it has agreed: changes cannot fail. */
int weir_books_ensure_handle(weir_books *books);
int64_t weir_books_add_handle(weir_books *books, uint64_t value, uint64_t bytes);
/* NULL unless it is held. */
weir_held *weir_books_handle(weir_books *books, uint64_t handle);
void weir_books_drop_handle(weir_books *books, uint64_t handle);

/* Whether the handle can be mapped there: room for the note, nothing there yet. */
int weir_books_may_map(weir_books *books, uint64_t address, uint64_t handle);
void weir_books_map(weir_books *books, uint64_t address, uint64_t handle);
/* Whether whole mappings fill the range. */
int weir_books_tile(const weir_books *books, uint64_t address, uint64_t bytes);
void weir_books_unmap(weir_books *books, uint64_t address, uint64_t bytes);
/* The mapping that the address lies in, or NULL; mappings begin at multiples of `unit`. */
const weir_entry *weir_books_around(const weir_books *books, uint64_t address, uint64_t unit);

int weir_books_ensure_reservation(weir_books *books);
void weir_books_reserve(weir_books *books, uint64_t address, uint64_t bytes);
int weir_books_is_reserved(const weir_books *books, uint64_t address, uint64_t bytes);
void weir_books_unreserve(weir_books *books, uint64_t address);

void weir_books_free(weir_books *books);

#endif
