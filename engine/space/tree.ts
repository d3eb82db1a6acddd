// A red-black tree of free ranges by (size, address), threaded through the ranges themselves.
// `slot` is where the root is kept. No recursion; every walk is bounded by twice the logarithm of the count.
import { NO_RANGE, Range } from '../records/nodes';

function rootOf(slot: usize): Range {
  return changetype<Range>(load<usize>(slot));
}

function setRoot(slot: usize, node: Range): void {
  store<usize>(slot, changetype<usize>(node));
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
  let node = rootOf(slot);
  if (node === NO_RANGE) return node;
  while (node.left !== NO_RANGE) node = node.left;
  return node;
}

export function lastOf(slot: usize): Range {
  let node = rootOf(slot);
  if (node === NO_RANGE) return node;
  while (node.right !== NO_RANGE) node = node.right;
  return node;
}

export function after(node: Range): Range {
  if (node.right !== NO_RANGE) {
    node = node.right;
    while (node.left !== NO_RANGE) node = node.left;
    return node;
  }
  let parent = node.parent;
  while (parent !== NO_RANGE && node === parent.right) {
    node = parent;
    parent = parent.parent;
  }
  return parent;
}

export function before(node: Range): Range {
  if (node.left !== NO_RANGE) {
    node = node.left;
    while (node.right !== NO_RANGE) node = node.right;
    return node;
  }
  let parent = node.parent;
  while (parent !== NO_RANGE && node === parent.left) {
    node = parent;
    parent = parent.parent;
  }
  return parent;
}

/** Makes a tree of one node. */
export function plant(slot: usize, node: Range): void {
  node.parent = NO_RANGE;
  node.left = NO_RANGE;
  node.right = NO_RANGE;
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
  node.left = NO_RANGE;
  node.right = NO_RANGE;
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
    if (parent === NO_RANGE || parent.red === 0) break;
    const grand = parent.parent;
    if (parent === grand.left) {
      const uncle = grand.right;
      if (uncle !== NO_RANGE && uncle.red !== 0) {
        parent.red = 0;
        uncle.red = 0;
        grand.red = 1;
        node = grand;
        continue;
      }
      if (node === parent.right) {
        rotateLeft(slot, parent);
        node = parent;
        parent = node.parent;
      }
      parent.red = 0;
      grand.red = 1;
      rotateRight(slot, grand);
    } else {
      const uncle = grand.left;
      if (uncle !== NO_RANGE && uncle.red !== 0) {
        parent.red = 0;
        uncle.red = 0;
        grand.red = 1;
        node = grand;
        continue;
      }
      if (node === parent.left) {
        rotateRight(slot, parent);
        node = parent;
        parent = node.parent;
      }
      parent.red = 0;
      grand.red = 1;
      rotateLeft(slot, grand);
    }
    break;
  }
  rootOf(slot).red = 0;
}

export function remove(slot: usize, node: Range): void {
  let child: Range;
  let parent: Range;
  let removedRed: u8;
  if (node.left !== NO_RANGE && node.right !== NO_RANGE) {
    // The successor takes the node's place and colour; what is missing afterwards is missing where it came from.
    let heir = node.right;
    while (heir.left !== NO_RANGE) heir = heir.left;
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

/** After a removal: the paths through `child` lack one black node. */
function rebalance(slot: usize, start: Range, above: Range): void {
  let node = start;
  let parent = above;
  while (parent !== NO_RANGE && (node === NO_RANGE || node.red === 0)) {
    if (node === parent.left) {
      let sibling = parent.right;
      if (sibling.red !== 0) {
        sibling.red = 0;
        parent.red = 1;
        rotateLeft(slot, parent);
        sibling = parent.right;
      }
      const near = sibling.left;
      let far = sibling.right;
      if ((near === NO_RANGE || near.red === 0) && (far === NO_RANGE || far.red === 0)) {
        sibling.red = 1;
        node = parent;
        parent = node.parent;
        continue;
      }
      if (far === NO_RANGE || far.red === 0) {
        near.red = 0;
        sibling.red = 1;
        rotateRight(slot, sibling);
        sibling = parent.right;
        far = sibling.right;
      }
      sibling.red = parent.red;
      parent.red = 0;
      far.red = 0;
      rotateLeft(slot, parent);
    } else {
      let sibling = parent.left;
      if (sibling.red !== 0) {
        sibling.red = 0;
        parent.red = 1;
        rotateRight(slot, parent);
        sibling = parent.left;
      }
      const near = sibling.right;
      let far = sibling.left;
      if ((near === NO_RANGE || near.red === 0) && (far === NO_RANGE || far.red === 0)) {
        sibling.red = 1;
        node = parent;
        parent = node.parent;
        continue;
      }
      if (far === NO_RANGE || far.red === 0) {
        near.red = 0;
        sibling.red = 1;
        rotateLeft(slot, sibling);
        sibling = parent.left;
        far = sibling.left;
      }
      sibling.red = parent.red;
      parent.red = 0;
      far.red = 0;
      rotateRight(slot, parent);
    }
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

function rotateLeft(slot: usize, node: Range): void {
  const riser = node.right;
  node.right = riser.left;
  if (riser.left !== NO_RANGE) riser.left.parent = node;
  replaceChild(slot, node, riser);
  riser.parent = node.parent;
  riser.left = node;
  node.parent = riser;
}

function rotateRight(slot: usize, node: Range): void {
  const riser = node.left;
  node.left = riser.right;
  if (riser.right !== NO_RANGE) riser.right.parent = node;
  replaceChild(slot, node, riser);
  riser.parent = node.parent;
  riser.right = node;
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
