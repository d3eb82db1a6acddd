// All allocators by name. A choice is written `name` or `name[settings]`; commas separate several.
import { ALLOCATOR_DOCS, ALLOCATOR_NAMES, type AllocatorName } from '../abi/allocators.ts';
import { ENGINE_SETTINGS, type EngineSettings } from '../abi/settings.ts';
import { formatBytes, parseBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';
import type { Allocator, AllocatorContext } from './allocator.ts';
import { CnMemAllocator } from './cnmem.ts';
import { createGmlake, createWeir } from './engine/allocator.ts';
import { MOST_GPU_BYTES, withHugeRequests } from './huge-requests.ts';
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

/** What makes a choice of the settings behind a name. Names and their meaning: abi/allocators.ts. */
const KINDS: Readonly<Record<AllocatorName, (settings: string) => AllocatorChoice>> = {
  pytorch: (settings) => pytorchChoice('pytorch', parseConf(settings)),
  expandable: (settings) => pytorchChoice('expandable', parseConf(settings, { ...DEFAULT_SETTINGS, expandableSegments: true })),
  cnmem: cnmemChoice,
  gmlake: (settings) => engineChoice('gmlake', settings, createGmlake),
  weir: (settings) => engineChoice('weir', settings, createWeir),
  planned: () => ({
    name: 'planned',
    kind: 'planned',
    settings: '',
    create: () => {
      throw new UsageError('planned works only in weir replay, which can read the whole run before it plans');
    },
  }),
};

/** One line per allocator, for help texts. */
export function describeAllocators(): string {
  const width = Math.max(...ALLOCATOR_NAMES.map((name) => name.length));
  return ALLOCATOR_NAMES.map((name) => `  ${name.padEnd(width)}  ${ALLOCATOR_DOCS[name]}`).join('\n');
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
    create: (context) => {
      const create = (inner: AllocatorContext) => new PyTorchAllocator(inner, settings);
      // Without expandable segments a request of any size is one driver call. With them, PyTorch refuses more than 9/8 of the GPU.
      const isBounded = !settings.expandableSegments || (context.deviceBytes ?? Number.POSITIVE_INFINITY) <= MOST_GPU_BYTES;
      return isBounded ? create(context) : withHugeRequests(context, create);
    },
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
  const kind = ALLOCATOR_NAMES.find((name) => name === match?.[1]);
  if (!match || !kind) {
    throw new UsageError(
      `there is no allocator '${text}'; choose from ${ALLOCATOR_NAMES.join(', ')}, with settings written as in pytorch[max_split_size_mb:128]`,
    );
  }
  return KINDS[kind](match[2] ?? '');
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
    create: (context) => withHugeRequests(context, (inner) => create(inner, settings as Partial<EngineSettings>)),
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
