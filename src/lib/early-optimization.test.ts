import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { STAGES } from './early-optimization.ts';

test('each flag is one that this V8 has', () => {
  const ended = (flag: string): number | null => spawnSync(process.execPath, [flag, '--eval', '']).status;
  const flags = STAGES.flatMap((stage) => stage.flags);
  expect(flags.map(ended)).toEqual(flags.map(() => 0));
  expect(ended('--invocation-count-for-nothing=1')).not.toBe(0);
});
