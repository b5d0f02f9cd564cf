import { valueProblem } from '../../kernel/json-schema.ts';
import { jsonValue } from '../../kernel/schemas.ts';
import type { Running } from '../running.ts';
import { completeThread, failThread } from './ending.ts';
import { hookAfterTurn } from './hooks.ts';
import { exportOutputs } from './outputs.ts';
import type { Step } from './step.ts';

/** How often a model is asked again for an output that matches its schema. */
const REPAIRS_MAX = 1;

/** The thread's model has answered without calls: its output is checked, shown to the last hook, and handed over. */
export function finish(at: Running): Step {
  const { stopped, lastText } = at.thread;
  const { outputSchema } = at.manifest;
  const output = outputOf(at);
  // A turn that a hook stopped ends with what it has.
  const isChecked = outputSchema !== undefined && !stopped;
  const problem = isChecked
    ? output === undefined
      ? 'it is not valid JSON'
      : valueProblem(outputSchema, output)
    : null;
  if (problem !== null) return refuse(at, problem);
  const hooked = hookAfterTurn(at, output);
  if (hooked !== 'next') return hooked;
  const exported = exportOutputs(at);
  return exported === 'next' ? completeThread(at, output === undefined ? lastText : output) : exported;
}

/** What the thread would give now: text, or the value that its schema asks for. */
function outputOf(at: Running): unknown {
  const { output, lastText } = at.thread;
  if (output !== null) return output.value;
  return at.manifest.outputSchema === undefined ? lastText : jsonOf(lastText);
}

function refuse(at: Running, problem: string): Step {
  const { rejected, output } = at.thread;
  if (rejected >= REPAIRS_MAX || output !== null) {
    const message = `The output does not fit the agent's outputSchema: ${problem}.`;
    return failThread(at, { code: 'output_invalid', message });
  }
  const message =
    `Your answer does not fit the required JSON Schema: ${problem}. ` + 'Answer again with nothing but the JSON value.';
  at.add({ type: 'output.rejected', data: { ...at.stamp, message } });
  return 'next';
}

/** A model that was asked for JSON may put it into a code fence. Undefined: the text is not JSON that a store can hold. */
function jsonOf(text: string): unknown {
  try {
    return jsonValue.safeParse(JSON.parse(unfenced(text.trim()))).data;
  } catch {
    return undefined;
  }
}

/** Only by its two ends: an expression that searches for them would try every newline in between as one of them. */
function unfenced(text: string): string {
  if (!text.startsWith(FENCE) || !text.endsWith(FENCE)) return text;
  return text
    .slice(FENCE.length, -FENCE.length)
    .replace(/^json\b/, '')
    .trim();
}

const FENCE = '```';
