import type { Verdict } from './verdict.ts';

/** The verdict as Markdown, as docs/chaos.md holds it. */
export function reportOf(
  verdict: Verdict,
  { seed, minutes }: { readonly seed: number; readonly minutes: number },
): string {
  const { faults, figures, lost, doubled, reordered, problems, evidence } = verdict;
  const counted = [...faults].toSorted(([a], [b]) => a.localeCompare(b));
  const total = counted.reduce((sum, [, times]) => sum + times, 0);
  const proven = { lost, doubled, reordered, 'other problems': problems.length };
  return [
    `### ${minutes} minutes, seed ${seed}`,
    '',
    ...table('fault', [...counted, ['**all**', total]]),
    '',
    ...table('figure', Object.entries(figures)),
    '',
    ...table('checked', Object.entries(proven)),
    '',
    ...problems.slice(0, PROBLEMS_SHOWN).map((problem) => `- ${problem}`),
    ...evidence,
  ].join('\n');
}

const PROBLEMS_SHOWN = 50;

function table(head: string, rows: readonly (readonly [string, number])[]): string[] {
  return [
    `| ${head} | count |`,
    '|---|---:|',
    ...rows.map(([name, count]) => `| ${name} | ${count.toLocaleString('en')} |`),
  ];
}
