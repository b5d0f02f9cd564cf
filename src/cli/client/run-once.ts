import { TurnError } from '../../client/client.ts';
import { StartError } from '../../lib/start-error.ts';
import { readArguments } from '../arguments.ts';
import { clientOf, plainly, readContext } from './context.ts';
import type { Environment } from './context.ts';

const OPTIONS = { agent: { type: 'string' }, session: { type: 'string' }, json: { type: 'boolean' } } as const;

/**
 * `agent-host run "text"`: one message and the output of its turn. With `--json` every record of the turn is a line. Returns the
 * exit code: 1 when the turn does not complete.
 */
export async function runOnce(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, OPTIONS);
  const [text] = words;
  if (text === undefined) throw new StartError('say what to send: agent-host run "What time is it?"');
  const context = await readContext(env);
  return await plainly(context.url, async () => {
    const client = clientOf(context);
    const session =
      values.session === undefined
        ? await client.sessions.open({ agentId: values.agent ?? context.agent })
        : client.session(values.session);
    try {
      const output = await session.ask(text, {
        onEvent: (event) => {
          if (values.json === true) process.stdout.write(`${JSON.stringify(event)}\n`);
        },
      });
      const shown = typeof output === 'string' ? output : JSON.stringify(output);
      if (values.json !== true) process.stdout.write(`${shown}\n`);
      return 0;
    } catch (error) {
      if (!(error instanceof TurnError)) throw error;
      process.stderr.write(`agent-host: ${error.code}: ${error.message} (session ${session.id})\n`);
      return 1;
    }
  });
}
