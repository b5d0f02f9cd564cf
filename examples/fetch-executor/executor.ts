/**
 * An executor in one file: it runs the tool `add` of one agent, with nothing but `fetch` (docs/executors.md). Copy it and
 * put your tools into TOOLS.
 *
 *   HOST_URL=http://127.0.0.1:7070 TENANT_ID=tn_… EXECUTOR_TOKEN=… node examples/fetch-executor/executor.ts
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

const { HOST_URL = 'http://127.0.0.1:7070', TENANT_ID = '', EXECUTOR_TOKEN = '' } = process.env;
const HEADERS = { authorization: `Bearer ${EXECUTOR_TOKEN}`, 'svc-tenant': TENANT_ID, 'svc-protocol': '8' };
const RETRY_MS = 500;
/** Actions that it works on at the same time. */
const CLAIMS = 20;

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
  let isSending = false;
  const beat = setInterval(() => {
    // While the Host is away one waits for it.
    if (isSending) return;
    isSending = true;
    void call('POST', `/v1/actions/${actionId}/heartbeat`, { requestId: randomUUID(), ...held }).finally(() => {
      isSending = false;
    });
  }, everyMs);
  const outcome = await outcomeOf(action);
  clearInterval(beat);
  // One key for each claim: however often this is sent, it counts once.
  const ids = { requestId: randomUUID(), idempotencyKey: `${actionId}.${generation}` };
  const result = { type: 'action_result', ...ids, actionId, ...held, outcome };
  const taken = await call('POST', `/v1/sessions/${encodeURIComponent(sessionId)}/commands`, result);
  process.stdout.write(`${actionId} ${taken === null ? 'was no longer ours' : outcome.kind}\n`);
}

let busy = 0;

/** Takes what waits, as far as there is room; of several executors each action is got by one. */
async function takeAll(): Promise<void> {
  while (busy < CLAIMS) {
    // Sent again after a crash, the same request gets the same claims: none is lost with an answer.
    const body = { requestId: randomUUID(), limit: CLAIMS - busy };
    const claimed = await call<{ claims: readonly Claim[] }>('POST', '/v1/actions/claim', body);
    if (claimed === null || claimed.claims.length === 0) return;
    for (const claim of claimed.claims) {
      busy++;
      void work(claim).finally(() => {
        busy--;
        void take();
      });
    }
  }
}

let taking = false;
let wanted = false;

/** One at a time; a signal that comes meanwhile is heeded after it. */
async function take(): Promise<void> {
  wanted = true;
  if (taking) return;
  taking = true;
  while (wanted) {
    wanted = false;
    await takeAll();
  }
  taking = false;
}

/** Each `work_available` means: take it. A new stream says at once whether there is work, so nothing is missed in between. */
async function listen(): Promise<void> {
  const stream = await fetch(`${HOST_URL}/v1/executors/connect`, { headers: HEADERS });
  if (!stream.ok || stream.body === null) throw new Error(`${stream.status} ${await stream.text()}`);
  process.stdout.write('Connected.\n');
  let rest = '';
  for await (const bytes of stream.body.pipeThrough(new TextDecoderStream())) {
    const frames = (rest + bytes).split('\n\n');
    rest = frames.pop() ?? '';
    if (frames.some((frame) => frame.startsWith('event: work_available'))) void take();
  }
}

for (;;) {
  await listen().catch((error: unknown) => process.stderr.write(`${String(error)}\n`));
  await pause();
}
