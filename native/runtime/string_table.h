/* Strings with numbers, in memory that another process reads: a u32 length and bytes each, one after the other. Not exported.
 * Not safe for several threads at once. */
#ifndef WEIR_STRING_TABLE_H
#define WEIR_STRING_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct string_table {
  char *area;
  uint64_t *used; /* bytes of the area; told to the reader after the string is there */
  struct interned *entries;
  uint32_t room, count;
} string_table;

/* The number of a string, from 1 on; 0 if it is empty or would use more than `room` bytes of the area. */
uint32_t strings_intern(string_table *table, const char *text, size_t length, uint32_t room);
void strings_free(string_table *table);

#endif
