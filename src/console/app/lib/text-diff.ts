import { structuredPatch } from 'diff';

export interface DiffLine {
  readonly sign: string;
  readonly text: string;
}

const AROUND = 4;

/** The lines that differ between two texts, anywhere in them, with a few around each; a gap is a line without a sign. */
export function textDiff(before: string, after: string): readonly DiffLine[] {
  const { hunks } = structuredPatch('', '', `${before}\n`, `${after}\n`, undefined, undefined, { context: AROUND });
  return hunks.flatMap(({ lines }, at) => [
    ...(at === 0 ? [] : [{ sign: ' ', text: '…' }]),
    ...lines.map((line) => ({ sign: line.slice(0, 1), text: line.slice(1) })),
  ]);
}
