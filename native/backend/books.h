/* The books of a backend: handles by number, mappings and reservations by address. Every call is checked against the books
 * first, because drivers forgive misuse: on CUDA, unmapping an address that is not mapped succeeds. */
#ifndef WEIR_BOOKS_H
#define WEIR_BOOKS_H

#include "address_map.h"

typedef struct weir_held {
  uint64_t value; /* the driver's own handle */
  uint64_t bytes; /* 0: no such handle */
  uint64_t mappings;
  uint64_t shared; /* 0, or its number among all handles that were shared */
  int32_t file;    /* if it is shared: the open file that stands for it */
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

/* Call `ensure` before the driver, and the change after the driver has succeeded: changes cannot fail. */
int weir_books_ensure_handle(weir_books *books);
int64_t weir_books_add_handle(weir_books *books, uint64_t value, uint64_t bytes);
/* NULL unless it is held. */
weir_held *weir_books_handle(weir_books *books, uint64_t handle);
void weir_books_drop_handle(weir_books *books, uint64_t handle);

/* Whether the handle is held, the address is free, and the books have room for the mapping. */
int weir_books_may_map(weir_books *books, uint64_t address, uint64_t handle);
void weir_books_map(weir_books *books, uint64_t address, uint64_t handle);
/* Whether whole mappings fill the range exactly. */
int weir_books_tile(const weir_books *books, uint64_t address, uint64_t bytes);
void weir_books_unmap(weir_books *books, uint64_t address, uint64_t bytes);
/* The mapping that holds the address, or NULL. Mappings begin at multiples of `unit`. */
const weir_entry *weir_books_around(const weir_books *books, uint64_t address, uint64_t unit);

int weir_books_ensure_reservation(weir_books *books);
void weir_books_reserve(weir_books *books, uint64_t address, uint64_t bytes);
int weir_books_is_reserved(const weir_books *books, uint64_t address, uint64_t bytes);
void weir_books_unreserve(weir_books *books, uint64_t address);

void weir_books_free(weir_books *books);

#endif
