// A red-black tree of free ranges by (size, address). The ranges are its nodes; `slot` holds the root.
// No function recurses. Functions that would need a mirror image take a side instead.
import { LEFT, NO_RANGE, Range, RIGHT } from '../records/nodes';

function rootOf(slot: usize): Range {
  return changetype<Range>(load<usize>(slot));
}

function setRoot(slot: usize, node: Range): void {
  store<usize>(slot, changetype<usize>(node));
}

function childOf(node: Range, side: usize): Range {
  return changetype<Range>(load<usize>(changetype<usize>(node) + side));
}

function setChild(node: Range, side: usize, child: Range): void {
  store<usize>(changetype<usize>(node) + side, changetype<usize>(child));
}

function opposite(side: usize): usize {
  return LEFT + RIGHT - side;
}

function sideOf(child: Range, parent: Range): usize {
  return child === parent.left ? LEFT : RIGHT;
}

function isRed(node: Range): bool {
  return node !== NO_RANGE && node.red !== 0;
}

function isBefore(a: Range, b: Range): bool {
  return a.size < b.size || (a.size === b.size && a.address < b.address);
}

/** The smallest range of at least `size`; the lowest address among equals. */
export function lowerBound(slot: usize, size: u64): Range {
  let node = rootOf(slot);
  let best = NO_RANGE;
  while (node !== NO_RANGE) {
    if (node.size >= size) {
      best = node;
      node = node.left;
    } else {
      node = node.right;
    }
  }
  return best;
}

export function firstOf(slot: usize): Range {
  return outermost(rootOf(slot), LEFT);
}

export function lastOf(slot: usize): Range {
  return outermost(rootOf(slot), RIGHT);
}

function outermost(root: Range, side: usize): Range {
  let node = root;
  if (node === NO_RANGE) return node;
  while (childOf(node, side) !== NO_RANGE) node = childOf(node, side);
  return node;
}

export function after(node: Range): Range {
  return neighbour(node, RIGHT);
}

export function before(node: Range): Range {
  return neighbour(node, LEFT);
}

function neighbour(start: Range, side: usize): Range {
  let node = start;
  if (childOf(node, side) !== NO_RANGE) return outermost(childOf(node, side), opposite(side));
  let parent = node.parent;
  while (parent !== NO_RANGE && node === childOf(parent, side)) {
    node = parent;
    parent = parent.parent;
  }
  return parent;
}

/** Whether a node has no children. One read covers both links. */
export function isLeaf(node: Range): bool {
  return load<u64>(changetype<usize>(node) + LEFT) === 0;
}

function makeLeaf(node: Range): void {
  store<u64>(changetype<usize>(node) + LEFT, 0);
}

/** Makes a tree of one node. */
export function plant(slot: usize, node: Range): void {
  node.parent = NO_RANGE;
  makeLeaf(node);
  node.red = 0;
  setRoot(slot, node);
}

/** Adds a node to a tree that is not empty. */
export function insert(slot: usize, node: Range): void {
  const size = node.size;
  const address = node.address;
  let place = rootOf(slot);
  let parent = place;
  let goLeft = false;
  while (place !== NO_RANGE) {
    parent = place;
    const other = place.size;
    goLeft = size < other || (size === other && address < place.address);
    place = goLeft ? place.left : place.right;
  }
  node.parent = parent;
  makeLeaf(node);
  if (goLeft) parent.left = node;
  else parent.right = node;
  node.red = 1;
  if (parent.red !== 0) repaint(slot, node);
}

/** After an insertion: no red node may have a red parent. */
function repaint(slot: usize, start: Range): void {
  let node = start;
  while (true) {
    let parent = node.parent;
    if (!isRed(parent)) break;
    const grand = parent.parent;
    const side = sideOf(parent, grand);
    const uncle = childOf(grand, opposite(side));
    if (isRed(uncle)) {
      parent.red = 0;
      uncle.red = 0;
      grand.red = 1;
      node = grand;
      continue;
    }
    if (node === childOf(parent, opposite(side))) {
      rotate(slot, parent, side);
      parent = node;
    }
    parent.red = 0;
    grand.red = 1;
    rotate(slot, grand, opposite(side));
    break;
  }
  rootOf(slot).red = 0;
}

export function remove(slot: usize, node: Range): void {
  let child: Range;
  let parent: Range;
  let removedRed: u8;
  if (node.left !== NO_RANGE && node.right !== NO_RANGE) {
    // The successor takes the node's place and colour, so the tree loses a node where the successor was.
    const heir = outermost(node.right, LEFT);
    removedRed = heir.red;
    child = heir.right;
    if (heir.parent === node) {
      parent = heir;
    } else {
      parent = heir.parent;
      parent.left = child;
      if (child !== NO_RANGE) child.parent = parent;
      heir.right = node.right;
      heir.right.parent = heir;
    }
    heir.left = node.left;
    heir.left.parent = heir;
    heir.red = node.red;
    replaceChild(slot, node, heir);
    heir.parent = node.parent;
  } else {
    removedRed = node.red;
    child = node.left !== NO_RANGE ? node.left : node.right;
    parent = node.parent;
    replaceChild(slot, node, child);
    if (child !== NO_RANGE) child.parent = parent;
  }
  if (removedRed === 0) rebalance(slot, child, parent);
}

/** After a removal: the paths through `start`, a child of `above`, lack one black node. */
function rebalance(slot: usize, start: Range, above: Range): void {
  let node = start;
  let parent = above;
  while (parent !== NO_RANGE && !isRed(node)) {
    const side = sideOf(node, parent);
    const other = opposite(side);
    let sibling = childOf(parent, other);
    if (sibling.red !== 0) {
      sibling.red = 0;
      parent.red = 1;
      rotate(slot, parent, side);
      sibling = childOf(parent, other);
    }
    const near = childOf(sibling, side);
    let far = childOf(sibling, other);
    if (!isRed(near) && !isRed(far)) {
      sibling.red = 1;
      node = parent;
      parent = node.parent;
      continue;
    }
    if (!isRed(far)) {
      near.red = 0;
      sibling.red = 1;
      rotate(slot, sibling, other);
      sibling = childOf(parent, other);
      far = childOf(sibling, other);
    }
    sibling.red = parent.red;
    parent.red = 0;
    far.red = 0;
    rotate(slot, parent, side);
    return;
  }
  if (node !== NO_RANGE) node.red = 0;
}

function replaceChild(slot: usize, node: Range, heir: Range): void {
  const parent = node.parent;
  if (parent === NO_RANGE) setRoot(slot, heir);
  else if (parent.left === node) parent.left = heir;
  else parent.right = heir;
}

/** The node sinks to the given side, and its child of the other side rises to its place. */
function rotate(slot: usize, node: Range, side: usize): void {
  const other = opposite(side);
  const riser = childOf(node, other);
  const moved = childOf(riser, side);
  setChild(node, other, moved);
  if (moved !== NO_RANGE) moved.parent = node;
  replaceChild(slot, node, riser);
  riser.parent = node.parent;
  setChild(riser, side, node);
  node.parent = riser;
}

/** Nodes of a sound tree; -1 if its order, links or colours are wrong. */
export function checkTree(slot: usize): i32 {
  const root = rootOf(slot);
  if (root === NO_RANGE) return 0;
  if (root.red !== 0 || root.parent !== NO_RANGE) return -1;
  let count = 0;
  let blackHeight = -1;
  let previous = NO_RANGE;
  for (let node = firstOf(slot); node !== NO_RANGE; node = after(node)) {
    count++;
    if (previous !== NO_RANGE && !isBefore(previous, node)) return -1;
    previous = node;
    if (node.left !== NO_RANGE && node.left.parent !== node) return -1;
    if (node.right !== NO_RANGE && node.right.parent !== node) return -1;
    if (node.red !== 0 && node.parent.red !== 0) return -1;
    if (node.left !== NO_RANGE && node.right !== NO_RANGE) continue;
    let blacks = 0;
    for (let up = node; up !== NO_RANGE; up = up.parent) if (up.red === 0) blacks++;
    if (blackHeight < 0) blackHeight = blacks;
    else if (blackHeight !== blacks) return -1;
  }
  return count;
}
