// The library's public face: everything another program may import from `weir`.
export * from './trace/trace.ts';
