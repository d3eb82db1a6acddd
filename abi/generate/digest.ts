// A hash over all tables. Every generated file carries it, and parts that meet compare it.
import { createHash } from 'node:crypto';
import * as adapter from '../adapter.ts';
import * as allocators from '../allocators.ts';
import * as engine from '../engine.ts';
import * as environment from '../environment.ts';
import * as events from '../events.ts';
import * as exchange from '../exchange.ts';
import * as formats from '../formats.ts';
import * as gauges from '../gauges.ts';
import * as pytorch from '../pytorch.ts';
import * as ring from '../ring.ts';
import * as settings from '../settings.ts';

/** 52 bits, so that JavaScript holds it exactly. */
export const DIGEST: number = Number.parseInt(
  createHash('sha256')
    .update(
      JSON.stringify(
        [adapter, allocators, engine, environment, events, exchange, formats, gauges, pytorch, ring, settings].map((table) => ({
          ...table,
        })),
      ),
    )
    .digest('hex')
    .slice(0, 13),
  16,
);
