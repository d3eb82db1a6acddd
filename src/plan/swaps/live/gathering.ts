// Chooses neighbours among the tensors of optimizer state that are swapped: they are idle at the same time, so the link does not care.
// The allocator does: it frees and joins memory in pieces that hold several of them. Pure.

import type { SwapMove } from '../../../abi/exchange.ts';
import { followMoves, isSound } from './following.ts';
import type { SwapProfile } from './profile.ts';

/** How much the peak may rise, as a share of it: tensors differ in size. */
const MOST_RISE = 0.002;

/** The same moves with state tensors that are neighbours, if that is no worse. */
export function gatherState(profile: SwapProfile, moves: readonly SwapMove[]): SwapMove[] {
  let gathered = [...moves];
  for (const key of new Set(profile.items.map(({ pre, post }) => `${pre} ${post}`))) gathered = gatherGroup(profile, gathered, key);
  return gathered;
}

function gatherGroup(profile: SwapProfile, moves: readonly SwapMove[], key: string): SwapMove[] {
  const isOfGroup = (index: number) => `${profile.items[index]!.pre} ${profile.items[index]!.post}` === key;
  const leaving = moves.filter((move) => move.class === 'item' && isOfGroup(move.index));
  const others = moves.filter((move) => !leaving.includes(move));
  const members = profile.items.map((_, index) => index).filter(isOfGroup);
  if (leaving.length === 0 || leaving.length === members.length) return [...moves];
  const chosen = firstOf(
    profile,
    members,
    leaving.reduce((sum, move) => sum + move.size, 0),
  );
  // Ticks count from the optimizer's step, which may be in the middle of the training step.
  const count = profile.ticks.us.length;
  const since = (tick: number) => (tick - profile.items[members[0]!]!.post + count) % count;
  const outward = places(leaving, (a, b) => since(a.out) - since(b.out) || since(a.drop) - since(b.drop));
  const homeward = places(leaving, (a, b) => a.turn - b.turn);
  let bytes = 0;
  const made = chosen.map((index): SwapMove => {
    const { size } = profile.items[index]!;
    const [first, last, returning] = [outward(bytes), outward(bytes + size - 1), homeward(bytes)];
    bytes += size;
    return { class: 'item', index, size, out: first.out, drop: last.drop, back: returning.back, turn: returning.turn };
  });
  const gathered = inOrder([...others, ...made]);
  const [before, after] = [followMoves(profile, moves), followMoves(profile, gathered)];
  const isNoWorse = after.peak <= before.peak * (1 + MOST_RISE) && after.stallUs <= before.stallUs && after.misses <= before.misses;
  const isAllowed = profile.limit === undefined || after.peak <= Math.max(profile.limit, before.peak);
  return isNoWorse && isAllowed && made.every((move) => isSound(profile, move)) ? gathered : [...moves];
}

/** The first tensors that fit into `bytes` together. */
function firstOf(profile: SwapProfile, members: readonly number[], bytes: number): number[] {
  let left = bytes;
  return members.filter((index) => {
    const { size } = profile.items[index]!;
    if (size > left) return false;
    left -= size;
    return true;
  });
}

/** Lines the moves up one after the other and gives the one at a byte. */
function places(moves: readonly SwapMove[], order: (a: SwapMove, b: SwapMove) => number): (byte: number) => SwapMove {
  const sorted = [...moves].sort(order);
  return (byte) => {
    let end = 0;
    for (const move of sorted) {
      end += move.size;
      if (byte < end) return move;
    }
    return sorted.at(-1)!;
  };
}

/** Sorted by the start of the copies out; turns become ranks again. */
function inOrder(moves: readonly SwapMove[]): SwapMove[] {
  const returns = [...moves].sort((a, b) => a.back - b.back || a.turn - b.turn);
  const turns = new Map(returns.map((move, turn) => [move, turn]));
  return [...moves].sort((a, b) => a.out - b.out || a.drop - b.drop).map((move) => ({ ...move, turn: turns.get(move)! }));
}
