// Nothing in the repository refers to a file that is not in it: links and paths in the documentation, documents named in sources.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, extname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../support/command.ts';

const root = ROOT.pathname;
const SKIPPED = new Set(['.git', 'node_modules', 'dist', 'build']);
const files = filesIn('').sort();
const documents = files.filter((path) => path.endsWith('.md'));
const sources = files.filter((path) => /\.(tsx?|mjs|css|py|c|cpp|h)$/.test(path));

function filesIn(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    if (SKIPPED.has(entry.name)) return [];
    return entry.isDirectory() ? filesIn(join(folder, entry.name)) : [join(folder, entry.name)];
  });
}

/** What the build makes: not there in a fresh clone. */
const GENERATED = [
  /^(build|dist)\//,
  /^engine\/abi\/(settings|numbers|statistics)\.ts$/,
  /^src\/abi\b/,
  /^python\/weir_gpu\/(abi|variables)\.py$/,
];
/** Folders beside the checkout, which only some benchmarks need. */
const OUTSIDE = /^\.\.\/shared\//;

/** `a.{h,c}` is two paths. */
function expand(path: string): string[] {
  const braces = /^(.*?)\{([^{}]*)\}(.*)$/.exec(path);
  return braces ? braces[2]!.split(',').flatMap((part) => expand(`${braces[1]}${part}${braces[3]}`)) : [path];
}

/** A star stands for any part of a name. */
function exists(path: string): boolean {
  if (!path.includes('*')) return existsSync(join(root, path));
  const folder = dirname(path);
  const name = new RegExp(
    `^${path
      .slice(folder.length + 1)
      .replaceAll('.', '\\.')
      .replaceAll('*', '.*')}$`,
  );
  return !folder.includes('*') && existsSync(join(root, folder)) && readdirSync(join(root, folder)).some((entry) => name.test(entry));
}

/** `paths` that are neither there nor made by the build; each may be meant from any of the folders. */
function missing(paths: readonly string[], folders: readonly string[]): string[] {
  return paths.flatMap(expand).filter((path) => {
    const candidates = folders.map((folder) => relative(root, join(root, folder, path)));
    return !candidates.some((candidate) => exists(candidate) || GENERATED.some((pattern) => pattern.test(candidate)));
  });
}

const withoutCode = (text: string) => text.replace(/```[\s\S]*?```/g, '');

function linksIn(text: string): string[] {
  return [...withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target!.replace(/#.*$/, ''))
    .filter((target) => target !== '' && !/^[a-z]+:/.test(target));
}

/** Words in backticks that look like a path from the root, or in the README of a folder like a file of that folder. */
function pathsIn(text: string, folder: string): string[] {
  const folders = new Set(files.filter((path) => path.includes('/')).map((path) => path.slice(0, path.indexOf('/'))));
  return [...withoutCode(text).matchAll(/`([^`\s]+)`/g)]
    .map(([, word]) => word!)
    .filter((word) => {
      if (!/^[\w./{},*-]+$/.test(word) || OUTSIDE.test(word)) return false;
      if (word.includes('/') && folders.has(word.slice(0, word.indexOf('/')))) return true;
      const isOfFolder = folder !== '.' && folder !== 'docs';
      return isOfFolder && /^\.(ts|c|h|cpp|py)$/.test(extname(word.replace(/\{.*\}$/, 'c')));
    });
}

describe('the documentation', () => {
  it.each(documents)('%s links to what is there', (path) => {
    expect(missing(linksIn(readFileSync(join(root, path), 'utf8')), [dirname(path)])).toEqual([]);
  });

  // Results name files as they were when they were measured.
  it.each(documents.filter((path) => !path.startsWith('bench/results/')))('%s names files that are there', (path) => {
    const folder = dirname(path);
    expect(missing(pathsIn(readFileSync(join(root, path), 'utf8'), folder), ['.', folder])).toEqual([]);
  });
});

describe('sources', () => {
  it('name documents that are there', () => {
    const dangling = sources.flatMap((path) => {
      const named = [...readFileSync(join(root, path), 'utf8').matchAll(/(?<![\w./*}>-])[A-Za-z.][\w./-]*\.md\b/g)].map(([name]) => name);
      return missing(named, ['.', dirname(path)]).map((name) => `${path}: ${name}`);
    });
    expect(dangling).toEqual([]);
  });
});
