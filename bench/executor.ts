import { randomBytes } from 'node:crypto';
import { expectStatus } from './loops.ts';
import type { Node } from './stage.ts';
import { EventReader, Lines, request } from './wire.ts';

/** What the load reads of an action. */
interface NamedAction {
  readonly actionId: string;
  readonly sessionId: string;
}

interface Claimed {
  readonly action: NamedAction;
  readonly claimId: string;
  readonly generation: number;
}

const CLAIMS_MAX = 100;

/**
 * An executor as `docs/executors.md` describes it, whose tools take no time. It claims what there is whenever it is
 * notified, or, `each`, every action that a signal names by itself.
 */
export class LoadExecutor {
  readonly #headers: string;
  readonly #claiming: 'together' | 'each';
  readonly #lines: Lines;
  readonly #run = randomBytes(4).toString('hex');
  #reader: EventReader | null = null;
  #isTaking = false;
  #isWanted = false;
  #keys = 0;
  /** The first thing that went wrong, for the row to throw. */
  failure: Error | null = null;

  private constructor(node: Node, headers: string, claiming: 'together' | 'each') {
    this.#lines = new Lines(node.address);
    this.#headers = headers;
    this.#claiming = claiming;
  }

  static async connect(node: Node, headers: string, claiming: 'together' | 'each'): Promise<LoadExecutor> {
    const executor = new LoadExecutor(node, headers, claiming);
    const head = request('GET', '/v1/executors/connect', { headers });
    executor.#reader = await EventReader.open(node.address, head, (frame) => executor.#hear(frame), ': keepalive');
    return executor;
  }

  close(): void {
    this.#reader?.close();
    this.#lines.close();
  }

  #hear(frame: string): void {
    if (!frame.includes('event: work_available')) return;
    if (this.#claiming === 'together') this.#take();
    else for (const action of named(frame)) this.#do(async () => await this.#claimOne(action));
  }

  #take(): void {
    this.#isWanted = true;
    if (this.#isTaking) return;
    this.#isTaking = true;
    this.#do(async () => await this.#takeAll());
  }

  async #takeAll(): Promise<void> {
    while (this.#isWanted) {
      this.#isWanted = false;
      const answer = await this.#send('/v1/actions/claim', { requestId: this.#key(), limit: CLAIMS_MAX }, 200);
      const { claims } = JSON.parse(answer) as { claims: readonly Claimed[] };
      for (const claim of claims) this.#do(async () => await this.#answer(claim));
      if (claims.length > 0) this.#isWanted = true;
    }
    this.#isTaking = false;
  }

  async #claimOne({ actionId }: NamedAction): Promise<void> {
    const answer = await this.#send(`/v1/actions/${actionId}/claim`, { requestId: this.#key() }, 200);
    await this.#answer(JSON.parse(answer) as Claimed);
  }

  async #answer({ action: { actionId, sessionId }, claimId, generation }: Claimed): Promise<void> {
    const idempotencyKey = `${actionId}.${generation}`;
    const outcome = { kind: 'completed', output: { ok: true } };
    const body = {
      type: 'action_result',
      requestId: this.#key(),
      idempotencyKey,
      actionId,
      claimId,
      generation,
      outcome,
    };
    await this.#send(`/v1/sessions/${sessionId}/commands`, body, 202);
  }

  async #send(path: string, body: object, status: number): Promise<string> {
    const answer = await this.#lines.send(
      request('POST', path, { headers: this.#headers, body: JSON.stringify(body) }),
    );
    expectStatus(answer, status);
    return answer.body;
  }

  #do(work: () => Promise<void>): void {
    work().catch((error: unknown) => {
      this.failure ??= error instanceof Error ? error : new Error(String(error));
    });
  }

  #key(): string {
    return `${this.#run}${this.#keys++}`;
  }
}

/** The actions of a signal. A frame has a line for its name and one for its data. */
function named(frame: string): readonly NamedAction[] {
  const data = frame.split('\n').find((line) => line.startsWith('data: ')) ?? 'data: {"actions":[]}';
  return (JSON.parse(data.slice(6)) as { actions: readonly NamedAction[] }).actions;
}
