/* Call stacks in the ring: a prefix tree of frames, and the names of their functions and files. Not exported.
 * Every table has a fixed room. Not safe for several threads at once. */
#ifndef WEIR_STACK_TABLES_H
#define WEIR_STACK_TABLES_H

#include "backend/address_map.h"
#include "string_table.h"
#include "weir_runtime.h"

typedef struct stack_tables {
  weir_ring_header *ring;
  weir_ring_stack *stacks; /* NULL: there are no tables */
  weir_ring_frame *frames;
  string_table strings;
  weir_map known_frames; /* name, filename and line -> number */
  weir_map known_stacks; /* parent and frame -> number */
} stack_tables;

/* Bytes of the tables in the file, for so many stacks. */
uint64_t stacks_bytes(uint32_t stacks);
void stacks_place(stack_tables *tables, weir_ring_header *ring, uint32_t at, uint32_t stacks);
/* The number of the stack that ends with this frame; -1 if it is new and there is no room. */
int32_t stacks_add(stack_tables *tables, int32_t parent, weir_text name, weir_text filename, int32_t line);
void stacks_free(stack_tables *tables);

#endif
