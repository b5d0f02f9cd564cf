import { useId } from 'react';
import type { ReactNode } from 'react';
import './charts.css';

export interface Bar {
  readonly name: string;
  readonly value: number;
}

interface ChartProps {
  readonly title: string;
  readonly bars: readonly Bar[];
  /** A value in words. */
  readonly shown: (value: number) => string;
}

const WIDTH = 720;
const HEIGHT = 160;
/** Below the columns, for the first and the last name. */
const FOOT = 18;
const HEAD = 16;
const LINES = 2;

/** Columns over time. Its numbers are in a table beside it: the picture only repeats them. */
export function Columns({ title, bars, shown }: ChartProps): ReactNode {
  const id = useId();
  const max = Math.max(...bars.map(({ value }) => value), 0);
  const step = WIDTH / Math.max(1, bars.length);
  const height = HEIGHT - FOOT - HEAD;
  return (
    <svg className="chart" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-labelledby={id}>
      <title id={id}>{`${title}: ${bars.length} days, at most ${shown(max)} in one`}</title>
      {Array.from({ length: LINES + 1 }, (_, at) => {
        const y = HEAD + (height * at) / LINES;
        return <line key={at} className="chart-line" x1="0" x2={WIDTH} y1={y} y2={y} />;
      })}
      <text className="chart-text" x="0" y={HEAD - 5}>
        {shown(max)}
      </text>
      {bars.map(({ name, value }, at) => {
        const size = max === 0 ? 0 : Math.max(value > 0 ? 1 : 0, (value / max) * height);
        return (
          <rect
            key={name}
            className="chart-bar"
            x={at * step + step * 0.1}
            y={HEAD + height - size}
            width={step * 0.8}
            height={size}
          >
            <title>{`${name}: ${shown(value)}`}</title>
          </rect>
        );
      })}
      <text className="chart-text" x="0" y={HEIGHT - 4}>
        {bars[0]?.name}
      </text>
      <text className="chart-text" x={WIDTH} y={HEIGHT - 4} textAnchor="end">
        {bars.at(-1)?.name}
      </text>
    </svg>
  );
}

/** Rows of a table with a bar each: what is compared is a number and a length at once. */
export function BarTable({ title, bars, shown, named }: ChartProps & { readonly named: string }): ReactNode {
  const max = Math.max(...bars.map(({ value }) => value), 0);
  return (
    <div className="table-wrap">
      <table className="bars">
        <caption className="hidden">{title}</caption>
        <thead>
          <tr>
            <th>{named}</th>
            <td aria-hidden="true" />
            <th className="number">{title}</th>
          </tr>
        </thead>
        <tbody>
          {bars.map(({ name, value }) => (
            <tr key={name}>
              <th scope="row">
                <bdi>{name}</bdi>
              </th>
              <td aria-hidden="true">
                <svg className="bar" viewBox="0 0 100 8" preserveAspectRatio="none">
                  <rect className="chart-bar" width={max === 0 ? 0 : (value / max) * 100} height="8" />
                </svg>
              </td>
              <td className="number">{shown(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
