import { randomUUID } from 'node:crypto';
import { delay } from '#src/lib/backoff.ts';
import type { Random } from '../support/random.ts';
import { boxOf, boxStep } from './boxes.ts';
import { remoteMessage } from './provider.ts';
import type { Sender } from './sender.ts';
import { toolCalls } from './tool-server.ts';
import { hasServer, isRemote } from './world.ts';

const FILE_BYTES = 20_000;
/** Few are queued: a queue of many turns takes long to come to its end. */
const BUSY = ['refuse', 'refuse', 'refuse', 'refuse', 'queue', 'interrupt'];

export interface TalkOptions {
  readonly sender: Sender;
  readonly sessions: readonly string[];
  readonly forksMax: number;
  readonly onFork: (id: string) => void;
  readonly random: Random;
  readonly stop: AbortSignal;
}

/** A client that talks to sessions in turn with others: messages, cancels, files, forks, one after the other. */
export async function talk(options: TalkOptions): Promise<void> {
  const { sender, sessions, random, stop } = options;
  while (!stop.aborted) {
    const session = sessions[random.int(0, sessions.length - 1)] ?? '';
    const dice = random.int(1, 100);
    if (dice <= 70) await sender.command(session, messageTo(session, random), dice <= 10 ? 2 : 1);
    else if (dice <= 78) await sender.command(session, { type: 'cancel', reason: 'enough' });
    else if (dice <= 90) await sender.upload(session, random.int(0, FILE_BYTES));
    else if (dice <= 93 && !isRemote(session) && !hasServer(session)) await fork(options, session);
    await delay(random.int(20, 250), stop);
  }
}

async function fork({ sender, sessions, forksMax, onFork, stop }: TalkOptions, parent: string): Promise<void> {
  const forks = sessions.filter((id) => id.includes('fork')).length;
  if (forks >= forksMax || stop.aborted) return;
  const id = `${boxOf(parent) ?? 'chaos'}/fork-${randomUUID()}`;
  if (await sender.fork(parent, id)) onFork(id);
}

/** One command of a flood: mostly messages, of which all but one at a time are refused. */
export async function floodOne(sender: Sender, session: string, random: Random): Promise<void> {
  if (random.int(0, 9) === 0) await sender.command(session, { type: 'cancel', reason: 'enough' });
  else await sender.command(session, { ...messageTo(session, random), whenBusy: 'refuse' });
}

function messageTo(session: string, random: Random): object {
  if (boxOf(session) !== null) return message(random, boxStep);
  if (!isRemote(session)) return message(random, hasServer(session) ? callingStep : step);
  const content = remoteMessage(randomUUID(), random.int(0, 3));
  return { type: 'message', content, whenBusy: BUSY[random.int(0, BUSY.length - 1)] };
}

function message(random: Random, of: (random: Random) => object): object {
  const steps = Array.from({ length: random.int(0, 3) }, () => of(random));
  const script = { fixture: [...steps, { text: 'done', delayMs: random.int(0, 300) }] };
  return { type: 'message', content: JSON.stringify(script), whenBusy: BUSY[random.int(0, BUSY.length - 1)] };
}

function step(random: Random): object {
  const dice = random.int(1, 10);
  const call = (name: string): object => ({ name, input: { n: random.int(0, 9) } });
  if (dice === 1) return { error: { code: 'overloaded', message: 'later', retryable: true } };
  if (dice === 2) return { text: 'may I', toolCalls: [call('careful')] };
  if (dice <= 6) return { text: 'work', toolCalls: Array.from({ length: random.int(1, 2) }, () => call('work')) };
  return { text: 'none', toolCalls: [call('none')], delayMs: random.int(0, 200) };
}

function callingStep(random: Random): object {
  return { text: 'call', toolCalls: toolCalls(random) };
}
