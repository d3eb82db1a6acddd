// The settings of PyTorch's caching allocator, read from a PYTORCH_CUDA_ALLOC_CONF string or from a snapshot.
// Names, defaults and parsing follow PyTorch 2.11.
import { formatBytes, KIB, MIB } from '../../base/bytes.ts';
import { UsageError } from '../../base/errors.ts';
import type { SettingValue } from '../../trace/trace.ts';

export interface PyTorchSettings {
  readonly expandableSegments: boolean;
  /** Blocks of this size and more are never split; Infinity when unset. */
  readonly maxSplitSize: number;
  /** Most bytes that a cached block may exceed an unsplittable request by. */
  readonly maxNonSplitRounding: number;
  /** Segment size for requests of 1 to 10 MiB, and page size of large expandable segments. */
  readonly largeSegmentSize: number;
  /** Share of the allowed memory above which cached blocks are collected. 0: off. Needs a memory fraction. */
  readonly garbageCollectionThreshold: number;
  /** Requests are rounded up to this many steps per power of two: one entry each for 1 MiB, 2 MiB, ... 32 GiB. 0: off. */
  readonly roundupPower2Divisions: readonly number[];
  /** Share of the GPU's memory that this process may take. 1: no limit. */
  readonly memoryFraction: number;
}

const DIVISION_ENTRIES = 16;
const MIN_LARGE_SEGMENT = 10 * MIB;

export const DEFAULT_SETTINGS: PyTorchSettings = {
  expandableSegments: false,
  maxSplitSize: Number.POSITIVE_INFINITY,
  maxNonSplitRounding: 20 * MIB,
  largeSegmentSize: 20 * MIB,
  garbageCollectionThreshold: 0,
  roundupPower2Divisions: new Array(DIVISION_ENTRIES).fill(0),
  memoryFraction: 1,
};

/** Settings that do not change where memory is placed. They are accepted so that a real configuration can be pasted. */
const WITHOUT_EFFECT = new Set([
  'release_lock_on_cudamalloc',
  'graph_capture_record_stream_reuse',
  'throw_on_cudamalloc_oom',
  'pinned_use_cuda_host_register',
  'pinned_num_register_threads',
  'pinned_reserve_segment_size_mb',
  'pinned_use_background_threads',
  'pinned_max_round_threshold_mb',
  'pinned_max_cached_size_mb',
  'pinned_free_catch_all',
]);

/** Applies a PYTORCH_CUDA_ALLOC_CONF string to `base`. Settings of versions to come are refused, or else left out. */
export function parseConf(
  conf: string,
  base: PyTorchSettings = DEFAULT_SETTINGS,
  unknown: 'refuse' | 'ignore' = 'refuse',
): PyTorchSettings {
  const settings = { ...base };
  let nonSplitRounding: number | undefined;
  for (const entry of splitOutsideBrackets(conf.replace(/\s+/g, ''))) {
    if (entry === '') continue;
    const colon = entry.indexOf(':');
    const key = colon < 0 ? entry : entry.slice(0, colon);
    const value = colon < 0 ? '' : entry.slice(colon + 1);
    switch (key) {
      case 'expandable_segments':
        settings.expandableSegments = parseBoolean(key, value);
        break;
      case 'max_split_size_mb':
        settings.maxSplitSize = parseMib(key, value);
        break;
      case 'max_non_split_rounding_mb':
        nonSplitRounding = parseMib(key, value);
        break;
      case 'large_segment_size_mb':
        settings.largeSegmentSize = parseMib(key, value);
        break;
      case 'garbage_collection_threshold':
        settings.garbageCollectionThreshold = parseShare(key, value, false);
        break;
      case 'per_process_memory_fraction':
        settings.memoryFraction = parseShare(key, value, true);
        break;
      case 'roundup_power2_divisions':
        settings.roundupPower2Divisions = parseDivisions(value);
        break;
      case 'backend':
        if (value !== 'native') throw new UsageError(`the backend '${value}' is not modelled; use backend:native or leave it out`);
        break;
      default:
        if (unknown === 'refuse' && !WITHOUT_EFFECT.has(key))
          throw new UsageError(`'${key}' is not a setting of PyTorch's allocator that weir knows; remove it`);
    }
  }
  if (settings.largeSegmentSize <= MIN_LARGE_SEGMENT) throw new UsageError('large_segment_size_mb must be more than 10');
  settings.maxNonSplitRounding = nonSplitRounding ?? Math.max(base.maxNonSplitRounding, settings.largeSegmentSize);
  if (settings.maxNonSplitRounding < settings.largeSegmentSize) {
    throw new UsageError(`max_non_split_rounding_mb must be at least the large segment size (${formatBytes(settings.largeSegmentSize)})`);
  }
  if (settings.maxSplitSize < settings.largeSegmentSize) {
    throw new UsageError(`max_split_size_mb must be at least the large segment size (${formatBytes(settings.largeSegmentSize)})`);
  }
  return settings;
}

/** The settings a recording was made with. If a snapshot lacks one, its configuration string decides, then the default. */
export function settingsFromRecording(recorded: ReadonlyMap<string, SettingValue>, memoryFraction = 1): PyTorchSettings {
  let settings: PyTorchSettings = DEFAULT_SETTINGS;
  const conf = recorded.get('PYTORCH_CUDA_ALLOC_CONF');
  if (typeof conf === 'string') {
    try {
      settings = parseConf(conf, DEFAULT_SETTINGS, 'ignore');
    } catch (error) {
      // If this version cannot read the string, the recording is still usable: its main settings are recorded one by
      // one.
      if (!(error instanceof UsageError)) throw error;
    }
  }
  const expandable = recorded.get('expandable_segments');
  const maxSplit = recorded.get('max_split_size');
  const threshold = recorded.get('garbage_collection_threshold');
  const divisions = recorded.get('roundup_power2_divisions');
  return {
    ...settings,
    expandableSegments: typeof expandable === 'boolean' ? expandable : settings.expandableSegments,
    maxSplitSize: typeof maxSplit === 'number' ? (maxSplit < 0 ? Number.POSITIVE_INFINITY : maxSplit) : settings.maxSplitSize,
    garbageCollectionThreshold: typeof threshold === 'number' ? threshold : settings.garbageCollectionThreshold,
    roundupPower2Divisions: divisions instanceof Map ? divisionsFromRecording(divisions) : settings.roundupPower2Divisions,
    memoryFraction: memoryFraction < 1 ? memoryFraction : settings.memoryFraction,
  };
}

/** The configuration string for these settings; empty for the defaults. */
export function formatConf(settings: PyTorchSettings): string {
  const parts: string[] = [];
  if (settings.expandableSegments) parts.push('expandable_segments:True');
  if (settings.maxSplitSize !== Number.POSITIVE_INFINITY) parts.push(`max_split_size_mb:${settings.maxSplitSize / MIB}`);
  if (settings.roundupPower2Divisions.some((division) => division > 0)) {
    parts.push(`roundup_power2_divisions:${formatDivisions(settings.roundupPower2Divisions)}`);
  }
  if (settings.garbageCollectionThreshold > 0) parts.push(`garbage_collection_threshold:${settings.garbageCollectionThreshold}`);
  if (settings.largeSegmentSize !== DEFAULT_SETTINGS.largeSegmentSize) {
    parts.push(`large_segment_size_mb:${settings.largeSegmentSize / MIB}`);
  }
  if (settings.maxNonSplitRounding !== Math.max(DEFAULT_SETTINGS.maxNonSplitRounding, settings.largeSegmentSize)) {
    parts.push(`max_non_split_rounding_mb:${settings.maxNonSplitRounding / MIB}`);
  }
  if (settings.memoryFraction < 1) parts.push(`per_process_memory_fraction:${settings.memoryFraction}`);
  return parts.join(',');
}

/** Splits at the commas that are not inside `[...]`. */
export function splitOutsideBrackets(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let index = 0; index < text.length; index++) {
    if (text[index] === '[') depth++;
    else if (text[index] === ']') depth--;
    else if (text[index] === ',' && depth === 0) {
      parts.push(text.slice(start, index));
      start = index + 1;
    }
  }
  parts.push(text.slice(start));
  return parts;
}

function parseDivisions(value: string): number[] {
  if (!value.startsWith('[')) return new Array(DIVISION_ENTRIES).fill(parseDivision(value));
  if (!value.endsWith(']')) throw new UsageError(`roundup_power2_divisions:${value} has no closing bracket`);
  const divisions: number[] = new Array(DIVISION_ENTRIES).fill(0);
  let last = -1;
  for (const entry of value.slice(1, -1).split(',')) {
    const [size = '', count = ''] = entry.split(':');
    if (size === '>') {
      divisions.fill(parseDivision(count), last + 1);
      break;
    }
    const index = Math.log2(Number(size));
    if (!Number.isInteger(index) || index < 0 || index >= DIVISION_ENTRIES) {
      throw new UsageError(`roundup_power2_divisions: '${size}' must be a power of two from 1 to 32768 (MiB)`);
    }
    // The first size also covers all smaller ones. Sizes that are not named are not rounded.
    if (last < 0) divisions.fill(parseDivision(count), 0, index);
    divisions[index] = parseDivision(count);
    last = index;
  }
  return divisions;
}

function parseDivision(value: string): number {
  const division = Number(value);
  if (value === '' || !Number.isInteger(division) || division < 0 || (division > 0 && !Number.isInteger(Math.log2(division)))) {
    throw new UsageError(`roundup_power2_divisions: '${value}' must be a power of two or 0`);
  }
  return division;
}

function formatDivisions(divisions: readonly number[]): string {
  if (divisions.every((division) => division === divisions[0])) return String(divisions[0]);
  return `[${divisions.map((division, index) => `${2 ** index}:${division}`).join(',')}]`;
}

function divisionsFromRecording(recorded: ReadonlyMap<string, SettingValue>): number[] {
  return DEFAULT_SETTINGS.roundupPower2Divisions.map((_, index) => {
    const division = recorded.get(String(2 ** index));
    return typeof division === 'number' ? division : 0;
  });
}

function parseBoolean(key: string, value: string): boolean {
  if (value === 'True') return true;
  if (value === 'False') return false;
  throw new UsageError(`${key} must be True or False, not '${value}'`);
}

function parseMib(key: string, value: string): number {
  const mib = Number(value);
  if (value === '' || !Number.isInteger(mib) || mib <= 0) throw new UsageError(`${key} must be a whole number of MiB, not '${value}'`);
  return mib * KIB * KIB;
}

function parseShare(key: string, value: string, includesOne: boolean): number {
  const share = Number(value);
  if (value === '' || !(share > 0) || share > 1 || (share === 1 && !includesOne)) {
    throw new UsageError(`${key} must be between 0 and 1, not '${value}'`);
  }
  return share;
}
