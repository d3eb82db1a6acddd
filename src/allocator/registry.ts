// All allocators by name. A choice is written `name` or `name[settings]`; commas separate several.
import { formatBytes, parseBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';
import type { Allocator, AllocatorContext } from './allocator.ts';
import { CnMemAllocator } from './cnmem.ts';
import { createGmlake, createWeir } from './engine/allocator.ts';
import { ENGINE_SETTINGS, type EngineSettings } from './engine/settings.ts';
import { PyTorchAllocator } from './pytorch/allocator.ts';
import { DEFAULT_SETTINGS, formatConf, type PyTorchSettings, parseConf, splitOutsideBrackets } from './pytorch/settings.ts';

/** An allocator with its settings, ready to be created in a context. */
export interface AllocatorChoice {
  /** As the user writes it: `pytorch[max_split_size_mb:128]`. */
  readonly name: string;
  readonly kind: string;
  /** The settings alone, as written in brackets; empty for the defaults. */
  readonly settings: string;
  /** For PyTorch's own allocators: the PYTORCH_CUDA_ALLOC_CONF that selects it. */
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
    summary: "PyTorch's caching allocator with expandable_segments:True",
    choose: (settings) => pytorchChoice('expandable', parseConf(settings, { ...DEFAULT_SETTINGS, expandableSegments: true })),
  },
  {
    name: 'cnmem',
    summary: 'CnMem: best fit, never releases memory; setting: initial:SIZE, the pool it starts with (default 0)',
    choose: cnmemChoice,
  },
  {
    name: 'gmlake',
    summary: "GMLake's policy on our engine: stitches 2 MiB handles; setting: minStitch:SIZE, smallest request to stitch for (128 MiB)",
    choose: (settings) => engineChoice('gmlake', settings, createGmlake),
  },
  {
    name: 'weir',
    summary:
      'our engine: stitches free memory, creates only what is missing, lends between streams; settings: ceiling:SIZE, memory it may hold freely; lend:0, no lending between streams',
    choose: (settings) => engineChoice('weir', settings, createWeir),
  },
  {
    name: 'planned',
    summary: 'our engine with a plan for the step that the run repeats (weir plan); for replay only',
    choose: () => ({
      name: 'planned',
      kind: 'planned',
      settings: '',
      create: () => {
        throw new UsageError('planned works only in weir replay, which can read the whole run before it plans');
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

/** PyTorch's allocator with these settings. */
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
      `there is no allocator '${text}'; choose from ${ALLOCATOR_NAMES.join(', ')}, with settings written as in pytorch[max_split_size_mb:128]`,
    );
  }
  return kind.choose(match[2] ?? '');
}

/** Settings that users may change. queueCompleted is not one: replay does not empty that queue. */
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
      throw new UsageError(`'${key}' is not a setting of ${kind}; choose from ${POLICY_SETTINGS.join(', ')}`);
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
    if (!match) throw new UsageError(`'${settings}' is not a setting of cnmem; write initial:SIZE`);
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
