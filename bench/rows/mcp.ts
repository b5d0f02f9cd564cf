import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { openMcpDriver } from '#src/drivers/mcp/driver.ts';
import type { McpDriver } from '#src/drivers/mcp/port.ts';
import { systemClock } from '#src/lib/clock.ts';
import { egressClient } from '#src/lib/egress-client.ts';
import { egressPolicy } from '#src/lib/egress.ts';
import { forgetPeak, MIB, peakBytes, residentBytes, Sample } from '../figures.ts';
import type { Behaviour } from '../mcp-servers.ts';
import type { Row } from '../row.ts';

const SERVERS = fileURLToPath(new URL('../mcp-servers.ts', import.meta.url));
const CALLS = 50;
const GOOD = 14;
const BAD: readonly Behaviour[] = ['hangs', 'hangs', 'hangs', 'lies', 'lies', 'floods'];
const WINDOWS = 5;
const SLOWER_MAX = 2;
const DEADLINE_MS = 120_000;

/** 1,000 calls at once over 20 servers, three of which hang, two lie and one floods, beside the good ones alone. */
export const mcp: Row = async ({ scale, report }) => {
  const behaviours = [...Array.from({ length: GOOD }, () => 'good' as const), ...BAD];
  const child = spawn(process.execPath, [SERVERS, JSON.stringify(behaviours)], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = await once(createInterface(child.stdout), 'line');
  const urls = z.array(z.string()).parse(JSON.parse(String(line)));
  const [good, bad] = [urls.slice(0, GOOD), urls.slice(GOOD)];
  const http = egressClient({ policy: egressPolicy('loopback'), connectMs: 20_000, silenceMs: DEADLINE_MS });
  const credentials = { forUrl: async () => await Promise.resolve({ kind: 'none' } as const) };
  const driver = openMcpDriver({ http, credentials, clock: systemClock });
  try {
    const [alone, beside] = [new Sample(), new Sample()];
    await window(driver, good, new Sample());
    forgetPeak(process.pid);
    const before = residentBytes(process.pid);
    for (let i = 0; i < Math.max(2, Math.ceil(WINDOWS * scale)); i += 1) {
      await window(driver, good, alone);
      const ending = new AbortController();
      const stuck = calls(driver, bad, { signal: ending.signal, sample: null });
      await window(driver, good, beside);
      ending.abort(new Error('the end of the window'));
      await Promise.allSettled(stuck);
    }
    const slower = beside.at(0.99) / alone.at(0.99);
    const memory = `${Math.round((peakBytes(process.pid) - before) / MIB)} MiB more than before`;
    report(`alone ${alone.text}, beside ${beside.text}, ${memory}`);
    return [
      {
        measure: `${CALLS * GOOD} calls at once of 14 MCP servers beside ${CALLS * BAD.length} of 3 that hang, 2 that lie and 1 that floods (bare: without them); ${memory}`,
        subject: beside.text,
        baseline: alone.text,
        ratio: slower.toFixed(2),
        target: `p99 < ${SLOWER_MAX} ×`,
        met: slower < SLOWER_MAX,
        goals: [],
      },
    ];
  } finally {
    await driver.stop();
    await http.close();
    child.stdin.end();
    await once(child, 'exit');
  }
};

async function window(driver: McpDriver, urls: readonly string[], sample: Sample): Promise<void> {
  for (const outcome of await Promise.all(calls(driver, urls, { signal: new AbortController().signal, sample }))) {
    if (outcome.kind !== 'result') throw new Error(JSON.stringify(outcome));
  }
}

function calls(
  driver: McpDriver,
  urls: readonly string[],
  { signal, sample }: { readonly signal: AbortSignal; readonly sample: Sample | null },
) {
  return Array.from({ length: CALLS * urls.length }, async (_, i) => {
    const url = urls[i % urls.length] ?? '';
    const named = { tenant: 'tn_1', sessionId: `session ${i % 5}`, turnId: null, vaultIds: [], name: 's' };
    const began = performance.now();
    const outcome = await driver.call(
      { ...named, url, headers: {}, only: null },
      { tool: 'act', input: {}, effectId: `ef_${i}`, deadline: Date.now() + DEADLINE_MS, digest: null },
      { signal },
    );
    sample?.add(performance.now() - began);
    return outcome;
  });
}
