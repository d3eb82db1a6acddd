/* A library with the functions of the adapter and nothing behind them. It says who it is by refusing. */
#include <stdio.h>

int weir_torch_install(void *options, char *why, unsigned long size) {
  (void)options;
  snprintf(why, size, "the stand-in was loaded");
  return 1;
}
void weir_torch_mark(void) {}
int weir_torch_gauges(void) { return 0; }
void weir_torch_swapped(void) {}
void weir_torch_steps(void) {}
void weir_torch_on_shortage(void) {}
int weir_torch_expandable(void) { return 0; }
void weir_torch_attempt(void) {}
unsigned weir_torch_check(void) { return 0; }
void weir_torch_categories(void) {}
void weir_torch_operator(void) {}
