import { delay } from '#src/lib/backoff.ts';
import type { Random } from '../support/random.ts';
import { putFile } from './box-acts.ts';
import type { BoxAct } from './box-acts.ts';
import type { OwnedBox } from './boxes.ts';
import { pick } from './pick.ts';
import type { Sender } from './sender.ts';

export interface OwnerOptions {
  readonly sender: Sender;
  readonly boxes: readonly OwnedBox[];
  readonly random: Random;
  readonly stop: AbortSignal;
}

/** A client that looks after sandboxes while turns work in them: puts files there, empties, stops and deletes them, one act after the other. */
export async function own({ sender, boxes, random, stop }: OwnerOptions): Promise<void> {
  for (let n = 1; !stop.aborted; n++) {
    const box = pick(random, boxes);
    const what = actOn(box, random.int(1, 100));
    const file = what === 'put' ? putFile(n) : { path: '', text: '' };
    await sender.act({ sandboxId: box.sandboxId, what, ...file });
    await delay(random.int(20, 400), stop);
  }
}

function actOn({ kind, isDoomed }: OwnedBox, dice: number): BoxAct['what'] {
  if (dice <= 12) return 'reset';
  if (dice <= 40 && kind === 'pod') return 'stop';
  return dice > 95 && isDoomed ? 'delete' : 'put';
}
