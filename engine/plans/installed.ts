// The installed plans: checks them, copies them out of the caller's rows, forgets them.
// A wrong plan does no harm, since a place is given out only if it is free.

import { countPlan, planBlocks, planBytes, planCount } from '../abi/counters';
import { BLOCK_UNIT, PlanRow } from '../abi/numbers';
import { gmlake } from '../abi/settings';

import { give, take, takeClear } from '../records/memory';
import { NO_RANGE, Range } from '../records/nodes';
import { newestPlanned, preparePlannedBlocks, setCells } from './blocks';
import { addEdge, adoptCells, beginCells, cellAt, finishCells } from './cells';
import { plannedAddress } from './memory';
import { CONTEXT, filterBytes, indexContexts, NO_PLAN, PLACE, Plan, sizeAt } from './position';

/** Most plans at a time. */
const MOST_PLANS: u32 = 4;
/** Limits, as in plan files. */
const MOST_TURNS: u32 = 16;
const MOST_REQUESTS: u32 = 1 << 20;
/** Offsets are kept in 32 bits, in units of 512 bytes. */
const MOST_FOOTPRINT: u64 = (<u64>1) << 40;

const plans: usize = memory.data(16);
/** The stream of all plans. */
export let planStream: u32 = 0;
let lastId: u32 = 0;

/** Rows that the caller writes: size u64, stream u32, 4 unused bytes, then an offset u64 for each turn. */
let rows: usize = 0;
let rowRequests: u32 = 0;
let rowTurns: u32 = 0;

export function planAt(index: u32): Plan {
  return changetype<Plan>(load<usize>(plans + ((<usize>index) << 2)));
}

function rowBytes(): usize {
  return PlanRow.BYTES + ((<usize>rowTurns) << 3);
}

function rowAt(index: u32): usize {
  return rows + <usize>index * rowBytes();
}

/** Memory for the rows of a plan, until it is installed; 0 if the plan is too long or memory is exhausted. */
export function openRows(requests: u32, turns: u32): usize {
  closeRows();
  if (requests === 0 || requests > MOST_REQUESTS || turns === 0 || turns > MOST_TURNS) return 0;
  rowRequests = requests;
  rowTurns = turns;
  rows = take(rowBytes() * <usize>requests);
  return rows;
}

function closeRows(): void {
  give(rows, rowBytes() * <usize>rowRequests);
  rows = 0;
}

/** Installs the plan in the rows and frees the rows. Gives the number of the plan, or 0 if it is refused. */
export function installRows(given: usize, footprint: u64): u32 {
  if (given === 0 || given !== rows) return 0;
  const id = rowsAreSane(footprint) ? installSane(footprint) : 0;
  closeRows();
  return id;
}

/** All plans are for one stream, so that its work orders the uses of a place. */
function rowsAreSane(footprint: u64): bool {
  if (gmlake !== 0 || footprint === 0 || footprint > MOST_FOOTPRINT) return false;
  const stream = load<u32>(rows, 8);
  if ((planCount > 0 || planBytes > 0) && stream !== planStream) return false;
  for (let index: u32 = 0; index < rowRequests; index++) {
    const row = rowAt(index);
    const size = load<u64>(row, PlanRow.Bytes);
    if (size === 0 || size > footprint || size % BLOCK_UNIT !== 0 || load<u32>(row, PlanRow.Stream) !== stream) return false;
    for (let turn: u32 = 0; turn < rowTurns; turn++) {
      const offset = load<u64>(row + ((<usize>turn) << 3), PlanRow.BYTES);
      if (offset % BLOCK_UNIT !== 0 || offset > footprint - size) return false;
    }
  }
  return true;
}

function installSane(footprint: u64): u32 {
  const plan = changetype<Plan>(takeClear(offsetof<Plan>()));
  if (plan === NO_PLAN) return 0;
  plan.count = rowRequests;
  plan.turns = rowTurns;
  plan.footprint = footprint;
  plan.last = -1;
  plan.named = -1;
  plan.sizes = take((<usize>rowRequests) << 2);
  plan.places = take(<usize>rowRequests * <usize>rowTurns * PLACE);
  if (plan.sizes === 0 || plan.places === 0) {
    drop(plan);
    return 0;
  }
  for (let index: u32 = 0; index < rowRequests; index++) {
    const row = rowAt(index);
    store<u32>(plan.sizes + ((<usize>index) << 2), <u32>(load<u64>(row, PlanRow.Bytes) / BLOCK_UNIT));
    for (let turn: u32 = 0; turn < rowTurns; turn++) {
      store<u64>(placeOf(plan, index, turn), load<u64>(row + ((<usize>turn) << 3), PlanRow.BYTES));
    }
  }
  if (!preparePlannedBlocks() || !indexContexts(plan) || !makeCells(plan)) {
    drop(plan);
    return 0;
  }
  if (planCount === MOST_PLANS) forget(oldest());
  planStream = load<u32>(rows, 8);
  lastId++;
  plan.id = lastId;
  store<usize>(plans + ((<usize>planCount) << 2), changetype<usize>(plan));
  countPlan(1);
  return plan.id;
}

/** Makes the cells of all plans, of one more, and of all planned blocks, whose plans may be forgotten. */
function makeCells(added: Plan): bool {
  let edges: u32 = 2 * (added.count * added.turns + planBlocks);
  for (let index: u32 = 0; index < planCount; index++) edges += 2 * planAt(index).count * planAt(index).turns;
  if (!beginCells(edges)) return false;
  addEdges(added);
  for (let index: u32 = 0; index < planCount; index++) addEdges(planAt(index));
  for (let block = newestPlanned(); block !== NO_RANGE; block = block.olderPlanned) {
    addEdge(unitsOf(block));
    addEdge(unitsOf(block) + <u32>(block.size / BLOCK_UNIT));
  }
  if (!finishCells()) return false;
  adoptCells();
  findCells(added);
  for (let index: u32 = 0; index < planCount; index++) findCells(planAt(index));
  for (let block = newestPlanned(); block !== NO_RANGE; block = block.olderPlanned) {
    setCells(block, cellAt(unitsOf(block)), cellAt(unitsOf(block) + <u32>(block.size / BLOCK_UNIT)));
  }
  return true;
}

/** Offset of a planned block, in units of 512 bytes. */
function unitsOf(block: Range): u32 {
  return <u32>((block.address - plannedAddress()) / BLOCK_UNIT);
}

function addEdges(plan: Plan): void {
  for (let index: u32 = 0; index < plan.count; index++) {
    for (let turn: u32 = 0; turn < plan.turns; turn++) {
      const start = <u32>(load<u64>(placeOf(plan, index, turn)) / BLOCK_UNIT);
      addEdge(start);
      addEdge(start + sizeAt(plan, index));
    }
  }
}

function findCells(plan: Plan): void {
  for (let index: u32 = 0; index < plan.count; index++) {
    for (let turn: u32 = 0; turn < plan.turns; turn++) {
      const place = placeOf(plan, index, turn);
      const start = <u32>(load<u64>(place) / BLOCK_UNIT);
      store<u32>(place, cellAt(start), 8);
      store<u32>(place, cellAt(start + sizeAt(plan, index)), 12);
    }
  }
}

/** The record of a place: offset u64, first and end cell u32. */
export function placeOf(plan: Plan, index: u32, turn: u32): usize {
  return plan.places + (<usize>index * <usize>plan.turns + <usize>turn) * PLACE;
}

/** The plan that served a request longest ago. */
function oldest(): Plan {
  let plan = planAt(0);
  for (let index: u32 = 1; index < planCount; index++) if (planAt(index).used < plan.used) plan = planAt(index);
  return plan;
}

export function planWithId(id: u32): Plan {
  for (let index: u32 = 0; index < planCount; index++) if (planAt(index).id === id) return planAt(index);
  return NO_PLAN;
}

/** Removes a plan from the list. Its blocks and cells stay. */
export function forget(plan: Plan): void {
  let index: u32 = 0;
  while (planAt(index) !== plan) index++;
  countPlan(-1);
  for (; index < planCount; index++) store<usize>(plans + ((<usize>index) << 2), changetype<usize>(planAt(index + 1)));
  drop(plan);
}

function drop(plan: Plan): void {
  give(plan.sizes, (<usize>plan.count) << 2);
  give(plan.places, <usize>plan.count * <usize>plan.turns * PLACE);
  give(plan.contexts, (<usize>plan.count) << 3);
  give(plan.filter, filterBytes(plan.count));
  give(plan.recent, (<usize>CONTEXT) << 2);
  give(changetype<usize>(plan), offsetof<Plan>());
}
