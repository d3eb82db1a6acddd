// Sorts numbers in linear memory. Shell sort needs no recursion and no scratch memory, and gives the same order in every build.

/** Sorts `count` numbers of type T at `list`, ascending. */
export function sortWords<T>(list: usize, count: u32): void {
  let gap: usize = 1;
  while (gap < <usize>count / 3) gap = gap * 3 + 1;
  for (; gap > 0; gap /= 3) {
    const jump = gap * sizeof<T>();
    for (let index = gap; index < <usize>count; index++) {
      const value = load<T>(list + index * sizeof<T>());
      let hole = list + index * sizeof<T>();
      while (hole >= list + jump && load<T>(hole - jump) > value) {
        store<T>(hole, load<T>(hole - jump));
        hole -= jump;
      }
      store<T>(hole, value);
    }
  }
}
