import { waitUntil } from '#src/embedded/wait-until.ts';
import { ms, Sample } from '../figures.ts';
import { atMost, expectStatus, openLoop } from '../loops.ts';
import type { Measure, Row } from '../row.ts';
import type { Node, Stage } from '../stage.ts';
import { bare, names, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';
import type { EventReader } from '../wire.ts';
import { writingModel } from '../writing-model.ts';
import type { WritingModel } from '../writing-model.ts';

const READERS = 1_000;
const ROUNDS = 3;
const WINDOW_MS = 5_000;
/** Words a second. Further apart than frames are: each is a frame of its own and waits for no other. */
const SINGLE = 15;
/** As fast as models write: what comes within 50 ms shares a frame. */
const FAST = 200;
const FRAME_MS = 50;
const BEYOND_MAX_MS = 5;
/** Readers that take nothing, beside the others. */
const SLOW = 50;
/** What they are sent first: more than the kernel's buffers hold, in answers that are never whole. */
const FILLING = { answers: 8, words: 14, chars: 60_000, perSecond: 19 };
/** How much longer others may wait for a frame beside them. */
const TIMES_MAX = 1.2;
const ENDS_WITHIN_MS = 30_000;

const STAMP = 'sent@';
const stamp = (): string => `${STAMP}${performance.now().toFixed(3).padStart(14, '0')}`;
const STAMP_CHARS = stamp().length;

/** How old the oldest and the newest word of each frame is when a reader has it. */
class Ages {
  readonly oldest = new Sample();
  readonly newest = new Sample();

  take(frame: string): void {
    const now = performance.now();
    const ageOf = (at: number): number => now - Number(frame.slice(at + STAMP.length, at + STAMP_CHARS));
    const first = frame.indexOf(STAMP);
    if (first < 0) return;
    this.oldest.add(ageOf(first));
    this.newest.add(ageOf(frame.lastIndexOf(STAMP)));
  }
}

/** One session of a Host, its readers, and the model that writes for them. */
class Scene {
  readonly baseline: Node;
  readonly id: string;
  readonly #host: Node;
  readonly #tenant: Tenant;
  readonly #model: WritingModel;
  readonly #lines: Lines;
  /** Of the turn that is under way. */
  #ages = new Ages();
  #ended = 0;

  private constructor(parts: { baseline: Node; id: string; host: Node; tenant: Tenant; model: WritingModel }) {
    this.baseline = parts.baseline;
    this.id = parts.id;
    this.#host = parts.host;
    this.#tenant = parts.tenant;
    this.#model = parts.model;
    this.#lines = new Lines(parts.host.address);
  }

  static async open(stage: Stage): Promise<Scene> {
    const host = await stage.host('commands,reads,projector,engine');
    const baseline = await stage.baseline();
    const model = await writingModel();
    const tenant = await Tenant.create(host, stage.adminKey);
    await tenant.callModelAt(host, model.baseUrl);
    const [id = ''] = names('written', 1);
    await tenant.openSessions(host, [id]);
    return new Scene({ baseline, id, host, tenant, model });
  }

  async readers(count: number): Promise<readonly EventReader[]> {
    const readers: EventReader[] = [];
    await atMost(64, Array.from({ length: count }), async () => {
      readers.push(await this.#tenant.follow(this.#host, this.id, (frame) => this.#take(frame), '&previews=true'));
    });
    return readers;
  }

  /** A turn whose model writes stamped words at a rate; it is over when all readers have seen its end. */
  async answer(perSecond: number, forMs: number, ages: Ages): Promise<void> {
    this.#ages = ages;
    await this.#turn(READERS, async (word) => {
      await openLoop(perSecond, forMs, async () => await Promise.resolve(word(`${stamp()} `)));
    });
  }

  /** Fills the buffers between the Host and its readers, of which one takes what it is sent. Returns the characters. */
  async fill(): Promise<number> {
    const { answers, words, chars, perSecond } = FILLING;
    const text = 'x'.repeat(chars);
    for (let n = 0; n < answers; n++) {
      await this.#turn(1, async (word, cancel) => {
        await openLoop(perSecond, (words * 1_000) / perSecond, async () => await Promise.resolve(word(text)));
        // A whole answer would be a record, and those wait for a reader.
        await cancel();
      });
    }
    return answers * words * chars;
  }

  async #turn(
    readers: number,
    write: (word: (text: string) => void, cancel: () => Promise<void>) => Promise<void>,
  ): Promise<void> {
    this.#ended = 0;
    const asked = this.#model.asked();
    expectStatus(await this.#lines.send(this.#tenant.message(this.id, 'Write.')), 202);
    const writing = await asked;
    await write(writing.word, async () => {
      expectStatus(await this.#lines.send(this.#tenant.cancel(this.id, 'enough')), 202);
    });
    writing.end();
    const all = await waitUntil(() => this.#ended >= readers || undefined, { timeoutMs: ENDS_WITHIN_MS });
    if (all !== true) throw new Error(`${readers - this.#ended} readers have not seen the end of the turn`);
  }

  #take(frame: string): void {
    if (frame.includes('event: preview\n')) this.#ages.take(frame);
    else if (/event: turn\.(completed|cancelled)\n/.test(frame)) this.#ended++;
  }

  close(): void {
    this.#lines.close();
    this.#model.close();
  }
}

/**
 * From the moment a model's server writes a word until 1,000 readers of the one session have it: word by word, as fast as
 * models write, and beside readers that take nothing. Held against as many plain responses that are written what core NATS
 * brings.
 */
export const previews: Row = async ({ stage, scale, report }) => {
  const scene = await Scene.open(stage);
  const forMs = WINDOW_MS * scale;
  const [single, fast, beside] = [new Ages(), new Ages(), new Ages()];
  let plain = new Ages();
  const readers = await scene.readers(READERS);
  const bareReaders: EventReader[] = [];
  await atMost(64, readers, async () => {
    bareReaders.push(await bare.follow(scene.baseline, scene.id, (frame) => plain.take(frame)));
  });
  const asMuch = async (): Promise<void> => await publish(stage, scene.id, forMs);
  await scene.answer(SINGLE, forMs, new Ages());
  await asMuch();
  plain = new Ages();
  for (let round = 0; round < ROUNDS; round++) {
    await scene.answer(SINGLE, forMs, single);
    await asMuch();
    await scene.answer(FAST, forMs, fast);
  }
  report(`single ${single.newest.text}; fast, newest ${fast.newest.text}, oldest ${fast.oldest.text}`);
  for (const reader of [...readers, ...bareReaders]) reader.close();

  const [watching, ...slow] = await scene.readers(SLOW + 1);
  for (const reader of slow) reader.pause();
  const sent = await scene.fill();
  watching?.close();
  const others = await scene.readers(READERS);
  await scene.answer(SINGLE, forMs, new Ages());
  for (let round = 0; round < ROUNDS; round++) await scene.answer(SINGLE, forMs, beside);
  for (const reader of others) reader.close();
  const taken = await Promise.all(slow.map(async (reader) => await reader.rest()));
  const most = Math.max(...taken);
  report(`of ${sent} characters a slow reader had ${most} bytes waiting at most`);
  for (const reader of slow) reader.close();
  scene.close();
  return measures({ single, fast, plain, beside }, most < sent);
};

/** What the bare handler's readers are sent: frames as long as the Host's, by core NATS like them. */
async function publish(stage: Stage, id: string, forMs: number): Promise<void> {
  await openLoop(SINGLE, forMs, async () => {
    const preview = { turnId: 't'.repeat(29), modelCallId: 'm'.repeat(29), offset: 1_000, text: `${stamp()} ` };
    await Promise.resolve(stage.connection.publish(`barelive.0.bench.session.${id}`, JSON.stringify(preview)));
  });
}

function measures(
  { single, fast, plain, beside }: Readonly<Record<'single' | 'fast' | 'plain' | 'beside', Ages>>,
  wereSlow: boolean,
): readonly Measure[] {
  const [word, bareWord] = [single.newest.at(0.5), plain.newest.at(0.5)];
  const times = beside.newest.at(0.5) / word;
  const beyond = fast.oldest.at(0.5) - FRAME_MS;
  const target = `p50 < ${ms(BEYOND_MAX_MS)}`;
  return [
    {
      measure: `a word of a model to the SSE of ${READERS} readers of its session, ${SINGLE} words/s, a frame each`,
      ...{ subject: single.newest.text, baseline: plain.newest.text, ratio: (word / bareWord).toFixed(2), target },
      met: word < BEYOND_MAX_MS,
      goals: [
        { label: `a word to ${READERS} readers, p50`, value: word, target: BEYOND_MAX_MS, unit: 'ms', better: 'less' },
      ],
    },
    {
      measure: `the same at ${FAST} words/s, which share frames: the newest word of each (and its oldest)`,
      subject: `${fast.newest.text} (oldest ${fast.oldest.text})`,
      ...{ baseline: '', ratio: '', target: `oldest: p50 < ${ms(FRAME_MS + BEYOND_MAX_MS)}` },
      met: beyond < BEYOND_MAX_MS,
      goals: [],
    },
    {
      measure: `a word to ${READERS} readers beside ${SLOW} that take nothing`,
      subject: beside.newest.text,
      ...{ baseline: `without them ${single.newest.text}`, ratio: times.toFixed(2), target: `ratio ≤ ${TIMES_MAX}` },
      met: wereSlow && times <= TIMES_MAX,
      goals: [],
    },
  ];
}
