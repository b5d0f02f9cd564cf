import { sha256Hex } from '../../lib/hash.ts';

const NAME_CHARS_MAX = 64;
const USABLE = /^[A-Za-z0-9_-]{1,64}$/;
const HASH_CHARS = 8;

/**
 * A tool's name for models: `<server>_<tool>`. One that models do not take is changed and cut, and ends in a hash of
 * both names, so that two that become alike stay two, and the same on every node.
 */
export function modelName(server: string, tool: string): string {
  const plain = `${server}_${tool}`;
  if (USABLE.test(plain)) return plain;
  const kept = plain.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, NAME_CHARS_MAX - HASH_CHARS - 1);
  return `${kept}_${sha256Hex(`${server}\0${tool}`).slice(0, HASH_CHARS)}`;
}
