import { setTimeout as pause } from 'node:timers/promises';

/**
 * Takes a share of a processor, and nothing else of what a Host uses, in pieces as short as those of a server. Runs until
 * it is ended.
 */
const share = Number(process.env['SHARE']);
const EACH_MS = 10;
// Whoever started it holds the other end, and may be killed.
process.stdin.on('end', () => process.exit()).resume();

for (;;) {
  const end = performance.now() + EACH_MS * share;
  while (performance.now() < end);
  await pause(EACH_MS * (1 - share));
}
