import { z } from 'zod';
import type { HookPoint } from '../agent/manifest.ts';

/** What a hook may answer; `{}` changes nothing. */
const OUTPUTS = {
  'before turn': z.strictObject({ input: z.string().min(1).optional() }),
  'before step': z.strictObject({ instructions: z.string().optional(), tools: z.array(z.string()).optional() }),
  'after step': z.strictObject({ stop: z.literal(true).optional(), reason: z.string().optional() }),
  'after turn': z.strictObject({ output: z.unknown().optional() }),
} as const;

/** Why a hook's output cannot be used; null: it can. */
export function hookOutputProblem({ at, scope }: HookPoint, output: unknown): string | null {
  const parsed = OUTPUTS[`${at} ${scope}`].safeParse(output ?? {});
  if (parsed.success) return null;
  const [issue] = parsed.error.issues;
  const where = issue?.path.length === 0 || issue === undefined ? '' : ` at ${issue.path.join('.')}`;
  return `The output of a hook ${at} the ${scope} is not of its form${where}: ${issue?.message ?? ''}`;
}
