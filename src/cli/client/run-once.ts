import { TurnError } from '../../client/client.ts';
import { misuse, StartError } from '../../lib/start-error.ts';
import { readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { plainText, safeJson } from '../terminal.ts';
import { withClient } from './context.ts';
import type { Environment } from './context-file.ts';

/**
 * `agent-host run "text"`: one message and the output of its turn. With `--json` every record of the turn is a line. Returns the
 * exit code: 1 when the turn does not complete.
 */
export async function runOnce(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('run'));
  const [text] = words;
  if (text === undefined) return misuse('say what to send: agent-host run "What time is it?"');
  return await withClient(env, values.context, async (client, context) => {
    const session =
      values.session === undefined
        ? await client.sessions.open({ agentId: values.agent ?? context.agent })
        : client.session(values.session);
    try {
      const output = await session.ask(text, {
        onEvent: (event) => {
          if (values.json === true) process.stdout.write(`${safeJson(event)}\n`);
        },
      });
      const shown = typeof output === 'string' ? plainText(output) : safeJson(output);
      if (values.json !== true) process.stdout.write(`${shown}\n`);
      return 0;
    } catch (error) {
      if (!(error instanceof TurnError)) throw error;
      const message = `${error.code}: ${error.message} (session ${session.id})`;
      throw new StartError(message, { cause: error, code: error.code });
    }
  });
}
