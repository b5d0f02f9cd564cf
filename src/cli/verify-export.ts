import { createCodec } from '../streams/codec.ts';
import { hasCode } from '../lib/files.ts';
import { EVENT_SCHEMAS } from '../app/event-schemas.ts';
import { UPCASTERS } from '../app/events.ts';
import { checkBundle } from '../archive/export/check-bundle.ts';
import type { Checked } from '../archive/export/check-bundle.ts';
import { StartError } from '../lib/start-error.ts';
import { readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';

/** Problems that are printed one by one; the rest is counted. */
const SHOWN_MAX = 100;
const KEY = /^[A-Za-z0-9_-]{43}$/;

/**
 * `agent-host verify-export <file> [--key <public key>]`: checks an export with nothing but the file, and says what it
 * checked and what it could not. Exit code 1 when anything is wrong.
 */
export async function verifyExport(args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, operatorOptionsOf('verify-export'));
  const [file] = words;
  if (file === undefined || words.length > 1) throw new StartError('name one file that agent-host export has written');
  const { key = null } = values;
  if (key !== null && !KEY.test(key)) {
    throw new StartError('--key needs a public key as agent-host export public-key prints it');
  }
  try {
    const checked = await checkBundle(file, { codec: createCodec(UPCASTERS), schemas: EVENT_SCHEMAS, key });
    print([checked], values.json, () => textOf(checked));
    return checked.problems.length === 0 ? 0 : 1;
  } catch (cause) {
    if (!hasCode(cause, 'ENOENT')) throw cause;
    throw new StartError(`there is no file ${file}`, { cause });
  }
}

function textOf({ header, problems, checked, unchecked }: Checked): string {
  const lines: string[] = [];
  if (header !== null) {
    const { tenant, session, installation, exportedAt } = header;
    lines.push(`session ${session} of tenant ${tenant}, exported ${exportedAt} by installation ${installation}`);
  }
  // Nothing in an altered history can be relied on.
  if (problems.length === 0) lines.push(...checked.map((what) => `checked: ${what}`));
  if (problems.length === 0) lines.push(...unchecked.map((what) => `not checked: ${what}`));
  lines.push(...problems.slice(0, SHOWN_MAX).map((what) => `problem: ${what}`));
  lines.push(problems.length === 0 ? 'nothing is wrong' : `${problems.length} problems`);
  return `${lines.join('\n')}\n`;
}
