/**
 * An executor in one file: it runs the tool `add` of one agent, with nothing but `fetch` (docs/executors.md). Copy it and
 * put your tools into TOOLS.
 *
 *   HOST_URL=http://127.0.0.1:7070 TENANT_ID=tn_… EXECUTOR_TOKEN=… node scripts/executor-example.ts
 */
import { randomUUID } from 'node:crypto';

interface Action {
  readonly actionId: string;
  readonly sessionId: string;
  readonly kind: 'tool' | 'hook';
  readonly toolName?: string;
  readonly input: unknown;
}

interface Claim {
  readonly action: Action;
  readonly claimId: string;
  readonly generation: number;
  readonly leaseExpiresAt: string;
}

type Outcome =
  | { readonly kind: 'completed'; readonly output: unknown }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string };

/** By name: what a tool does with its input. What it throws becomes a failed result that the model is told of. */
const TOOLS: Readonly<Record<string, (input: unknown) => unknown>> = {
  add: (input) => {
    const { a, b }: { a: unknown; b: unknown } = Object(input);
    return Number(a) + Number(b);
  },
};

// oxlint-disable-next-line node/no-process-env -- where to find the Host is all that it is told
const { HOST_URL = 'http://127.0.0.1:7070', TENANT_ID = '', EXECUTOR_TOKEN = '' } = process.env;
const HEADERS = { authorization: `Bearer ${EXECUTOR_TOKEN}`, 'svc-tenant': TENANT_ID, 'svc-protocol': '8' };
const RETRY_MS = 500;

const pause = async (): Promise<void> => await new Promise((resolve) => setTimeout(resolve, RETRY_MS));

/** The answer's body, or null for a refusal. While the Host is away, the same request is sent again: it is safe to. */
async function call<T>(method: 'GET' | 'POST', path: string, body?: object): Promise<T | null> {
  const init = { method, headers: { ...HEADERS, 'content-type': 'application/json' } };
  for (;;) {
    const response = await fetch(`${HOST_URL}${path}`, {
      ...init,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    }).catch(() => null);
    if (response !== null && response.status < 500 && response.status !== 429) {
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as the Host's document says
      return response.ok ? ((await response.json()) as T) : null;
    }
    await pause();
  }
}

async function outcomeOf({ kind, toolName = '', input }: Action): Promise<Outcome> {
  // `{}` is the answer of a hook that changes nothing.
  if (kind === 'hook') return { kind: 'completed', output: {} };
  const tool = TOOLS[toolName];
  if (tool === undefined) return { kind: 'failed', code: 'tool_missing', message: `No ${toolName} here.` };
  try {
    return { kind: 'completed', output: await tool(input) };
  } catch (error) {
    return { kind: 'failed', code: 'tool_failed', message: String(error) };
  }
}

async function work({ action, claimId, generation, leaseExpiresAt }: Claim): Promise<void> {
  const { actionId, sessionId } = action;
  const held = { claimId, generation };
  const everyMs = Math.max(100, (Date.parse(leaseExpiresAt) - Date.now()) / 3);
  const beat = setInterval(() => {
    void call('POST', `/v1/actions/${actionId}/heartbeat`, { requestId: randomUUID(), ...held });
  }, everyMs);
  const outcome = await outcomeOf(action);
  clearInterval(beat);
  // One key for each claim: however often this is sent, it counts once.
  const ids = { requestId: randomUUID(), idempotencyKey: `${actionId}.${generation}` };
  const result = { type: 'action_result', ...ids, actionId, ...held, outcome };
  const taken = await call('POST', `/v1/sessions/${encodeURIComponent(sessionId)}/commands`, result);
  process.stdout.write(`${actionId} ${taken === null ? 'was no longer ours' : outcome.kind}\n`);
}

/** Takes everything that waits; of several executors each action is got by one. */
async function takeAll(): Promise<void> {
  const list = await call<{ actions: readonly Action[] }>('GET', '/v1/actions?limit=20');
  await Promise.all(
    (list?.actions ?? []).map(async ({ actionId }) => {
      const claim = await call<Claim>('POST', `/v1/actions/${actionId}/claim`, { requestId: randomUUID() });
      if (claim !== null) await work(claim);
    }),
  );
}

/** Each `work_available` means: look. A new stream says at once whether there is work, so nothing is missed in between. */
async function listen(): Promise<void> {
  const stream = await fetch(`${HOST_URL}/v1/executors/connect`, { headers: HEADERS });
  if (!stream.ok || stream.body === null) throw new Error(`${stream.status} ${await stream.text()}`);
  process.stdout.write('Connected.\n');
  let rest = '';
  for await (const bytes of stream.body.pipeThrough(new TextDecoderStream())) {
    const frames = (rest + bytes).split('\n\n');
    rest = frames.pop() ?? '';
    if (frames.some((frame) => frame.startsWith('event: work_available'))) void takeAll();
  }
}

for (;;) {
  await listen().catch((error: unknown) => process.stderr.write(`${String(error)}\n`));
  await pause();
}
