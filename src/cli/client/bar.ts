import { barOf } from '../progress.ts';
import { plainLine } from '../terminal.ts';
import { sizeText } from './output.ts';

const EVERY_MS = 100;
type Output = Pick<NodeJS.WriteStream, 'isTTY' | 'write'>;

/**
 * How far long work has come, on standard error where that is a terminal: a bar where the whole is known, else the amount.
 * @param of how much there is; null: not known
 */
export function transferBar(
  { what, of, unit = sizeText }: { what: string; of: number | null; unit?: (amount: number) => string },
  output: Output = process.stderr,
): { readonly add: (amount: number) => void; readonly done: () => void } {
  let [done, drawnAt, isDrawn] = [0, performance.now(), false];
  return {
    add: (amount) => {
      done += amount;
      if (!output.isTTY || performance.now() - drawnAt < EVERY_MS) return;
      drawnAt = performance.now();
      isDrawn = true;
      const amounts = of === null ? unit(done) : `${unit(done)} of ${unit(of)}`;
      const bar = of === null || of === 0 ? '' : `${barOf(done / of)} `;
      output.write(`\r\u001B[K${bar}${plainLine(what)}: ${amounts}`);
    },
    done: () => {
      if (isDrawn) output.write('\r\u001B[K');
    },
  };
}

/** The same stream, its bytes counted as they pass. */
export function counted(stream: ReadableStream<Uint8Array>, add: (bytes: number) => void): ReadableStream<Uint8Array> {
  return stream.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform: (chunk, controller) => {
        add(chunk.length);
        controller.enqueue(chunk);
      },
    }),
  );
}
