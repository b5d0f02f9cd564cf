import type { ReactNode } from 'react';

export type Tone = 'run' | 'ok' | 'warn' | 'bad' | 'wait' | 'quiet';

const TONES: Readonly<Record<string, Tone>> = {
  running: 'run',
  claimed: 'run',
  called: 'run',
  offered: 'wait',
  waiting: 'wait',
  paused: 'warn',
  open: 'warn',
  needs_auth: 'warn',
  uncertain: 'bad',
  failed: 'bad',
  lost: 'bad',
  denied: 'bad',
  completed: 'ok',
  connected: 'ok',
  ready: 'ok',
  approved: 'ok',
  answered: 'ok',
  ok: 'ok',
};

/** A state in a word; colour only repeats what the word says. */
export function Status({ of, tone, children }: { of: string; tone?: Tone; children?: ReactNode }): ReactNode {
  return (
    <span className="status" data-tone={tone ?? TONES[of] ?? 'quiet'}>
      {children ?? of.replaceAll('_', ' ')}
    </span>
  );
}

export function Labels({ labels }: { readonly labels: Readonly<Record<string, string>> }): ReactNode {
  return (
    <span className="chips">
      {Object.entries(labels).map(([name, value]) => (
        <span key={name} className="chip" title={`${name}=${value}`} dir="auto">
          {name}={value}
        </span>
      ))}
    </span>
  );
}
