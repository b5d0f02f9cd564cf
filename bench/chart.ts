import type { Goal } from './row.ts';

const WIDTH = 960;
const LINE = 30;
const TOP = 64;
const BOTTOM = 34;
/** Where the bars begin, and how wide the widest is. */
const LEFT = 360;
const BARS = 380;
/** The chart ends at so many times the target; a longer bar is cut and says so. */
const TIMES_MAX = 2;

/** Colours that stand out on white and on black alike; text follows the reader's scheme. */
const STYLE = `
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .small { font-size: 12px; fill: #59636e; }
    .title { font-size: 16px; font-weight: 600; }
    .met { fill: #2da44e; }
    .missed { fill: #d4731b; }
    .target { stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 4 3; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9198a1; }
      .target { stroke: #9198a1; }
    }`;

/**
 * How far each figure is from its target, as an SVG: the dashed line is the target, a bar that reaches it meets it. For a
 * figure that has to be small, the bar is the longer the smaller it is.
 */
export function chart(goals: readonly Goal[], caption: string): string {
  const height = TOP + goals.length * LINE + BOTTOM;
  const target = LEFT + BARS / TIMES_MAX;
  const lines = goals.map((goal, index) => line(goal, TOP + index * LINE));
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Figures of the bench against their targets">
  <style>${STYLE}
  </style>
  <text class="title" x="16" y="26">Figures against their targets</text>
  <text class="small" x="16" y="46">${escaped(caption)}</text>
  <text class="small" x="${target}" y="${TOP - 6}" text-anchor="middle">target</text>
${lines.join('\n')}
  <line class="target" x1="${target}" y1="${TOP}" x2="${target}" y2="${height - BOTTOM + 4}" />
  <text class="small" x="16" y="${height - 10}">A bar that reaches the dashed line meets its target. For a figure that has to be small, a longer bar is a smaller figure.</text>
</svg>
`;
}

function line(goal: Goal, y: number): string {
  const times = goal.better === 'more' ? goal.value / goal.target : goal.target / goal.value;
  const width = Math.max(1, (Math.min(times, TIMES_MAX) * BARS) / TIMES_MAX);
  const relation = goal.better === 'more' ? '≥' : '≤';
  const text = `${shown(goal.value)} of ${relation} ${shown(goal.target)} ${goal.unit}`.trimEnd();
  return `  <text x="${LEFT - 12}" y="${y + 19}" text-anchor="end">${escaped(goal.label)}</text>
  <rect class="${times >= 1 ? 'met' : 'missed'}" x="${LEFT}" y="${y + 5}" width="${width.toFixed(1)}" height="${LINE - 10}" rx="3" />
  <text class="small" x="${LEFT + BARS + 10}" y="${y + 19}">${escaped(text)}${times > TIMES_MAX ? ' →' : ''}</text>`;
}

function shown(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
