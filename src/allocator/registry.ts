// All allocators by name. A choice is written `name` or `name[settings]`, and several are separated by commas.
import { formatBytes, parseBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';
import type { Allocator, AllocatorContext } from './allocator.ts';
import { CnMemAllocator } from './cnmem.ts';
import { createGmlake, createWeir } from './engine/allocator.ts';
import { ENGINE_SETTINGS, type EngineSettings } from './engine/settings.ts';
import { PyTorchAllocator } from './pytorch/allocator.ts';
import { DEFAULT_SETTINGS, formatConf, type PyTorchSettings, parseConf, splitOutsideBrackets } from './pytorch/settings.ts';

/** An allocator with its settings, ready to be put into a context. */
export interface AllocatorChoice {
  /** How it is written: `pytorch[max_split_size_mb:128]`. */
  readonly name: string;
  readonly kind: string;
  /** The settings alone, in the kind's own notation; empty for the defaults. */
  readonly settings: string;
  /** For PyTorch's own allocators, what to set to get it. */
  readonly conf?: string | undefined;
  create(context: AllocatorContext): Allocator;
}

interface AllocatorKind {
  readonly name: string;
  readonly summary: string;
  choose(settings: string): AllocatorChoice;
}

const KINDS: readonly AllocatorKind[] = [
  {
    name: 'pytorch',
    summary: "PyTorch's caching allocator; settings as in PYTORCH_CUDA_ALLOC_CONF",
    choose: (settings) => pytorchChoice('pytorch', parseConf(settings)),
  },
  {
    name: 'expandable',
    summary: 'the same with expandable_segments:True',
    choose: (settings) => pytorchChoice('expandable', parseConf(settings, { ...DEFAULT_SETTINGS, expandableSegments: true })),
  },
  {
    name: 'cnmem',
    summary: 'CnMem, best fit without giving back; setting: initial:SIZE, the pool it starts with (default 0)',
    choose: cnmemChoice,
  },
  {
    name: 'gmlake',
    summary: "GMLake's policy on our engine: 2 MiB handles, stitched; setting: minStitch:SIZE, least request to stitch for (128 MiB)",
    choose: (settings) => engineChoice('gmlake', settings, createGmlake),
  },
  {
    name: 'weir',
    summary:
      'our engine: stitches what is free, creates only what is missing, lends between streams; settings: ceiling:SIZE, memory it may hold without a second thought, lend:0 to keep streams apart',
    choose: (settings) => engineChoice('weir', settings, createWeir),
  },
  {
    name: 'planned',
    summary: 'the step that the run repeats laid out ahead (weir plan), on our engine; for replay only',
    choose: () => ({
      name: 'planned',
      kind: 'planned',
      settings: '',
      create: () => {
        throw new UsageError('planned works only in replay, where it can see the whole run first');
      },
    }),
  },
];

export const ALLOCATOR_NAMES: readonly string[] = KINDS.map((kind) => kind.name);

/** One line per allocator, for help texts. */
export function describeAllocators(): string {
  const width = Math.max(...ALLOCATOR_NAMES.map((name) => name.length));
  return KINDS.map((kind) => `  ${kind.name.padEnd(width)}  ${kind.summary}`).join('\n');
}

/** PyTorch's allocator with settings given as values. */
export function pytorchChoice(kind: 'pytorch' | 'expandable', settings: PyTorchSettings): AllocatorChoice {
  const conf = formatConf(settings);
  const written = formatConf({ ...settings, expandableSegments: settings.expandableSegments && kind !== 'expandable' });
  return {
    name: written === '' ? kind : `${kind}[${written}]`,
    kind,
    settings: written,
    conf,
    create: (context) => new PyTorchAllocator(context, settings),
  };
}

/** Reads `pytorch,expandable,pytorch[max_split_size_mb:128]`. */
export function chooseAllocators(text: string): AllocatorChoice[] {
  return splitOutsideBrackets(text)
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .map(chooseAllocator);
}

function chooseAllocator(text: string): AllocatorChoice {
  const match = /^([a-z0-9_-]+)(?:\[(.*)\])?$/s.exec(text);
  const kind = KINDS.find((candidate) => candidate.name === match?.[1]);
  if (!match || !kind) {
    throw new UsageError(
      `there is no allocator '${text}'; choose from ${ALLOCATOR_NAMES.join(', ')}, with settings as pytorch[max_split_size_mb:128]`,
    );
  }
  return kind.choose(match[2] ?? '');
}

/** What a user may set: a queue that nobody empties is of no use in a replay. */
const POLICY_SETTINGS: readonly (keyof EngineSettings)[] = ENGINE_SETTINGS.filter((name) => name !== 'queueCompleted');

function engineChoice(
  kind: 'gmlake' | 'weir',
  text: string,
  create: (context: AllocatorContext, settings: Partial<EngineSettings>) => Allocator,
): AllocatorChoice {
  const settings: Partial<Record<keyof EngineSettings, number>> = {};
  for (const part of text.split(',').filter((entry) => entry.trim() !== '')) {
    const [key = '', value = ''] = part.trim().split(':');
    if (!POLICY_SETTINGS.includes(key as keyof EngineSettings)) {
      throw new UsageError(`'${key}' is not a setting of ${kind}; it has ${POLICY_SETTINGS.join(', ')}`);
    }
    settings[key as keyof EngineSettings] = parseBytes(value);
  }
  const written = Object.entries(settings)
    .map(([key, value]) => `${key}:${value}`)
    .join(',');
  return {
    name: written === '' ? kind : `${kind}[${written}]`,
    kind,
    settings: written,
    create: (context) => create(context, settings as Partial<EngineSettings>),
  };
}

function cnmemChoice(settings: string): AllocatorChoice {
  let initialBytes = 0;
  if (settings !== '') {
    const match = /^initial:(.+)$/.exec(settings);
    if (!match) throw new UsageError(`cnmem has one setting, initial:SIZE, not '${settings}'`);
    initialBytes = parseBytes(match[1]!);
  }
  const written = initialBytes > 0 ? `initial:${formatBytes(initialBytes).replace(' ', '')}` : '';
  return {
    name: written === '' ? 'cnmem' : `cnmem[${written}]`,
    kind: 'cnmem',
    settings: written,
    create: (context) => new CnMemAllocator(context, { initialBytes }),
  };
}
