import { z } from 'zod';
import { sandboxToolsOf } from '../../agent/manifest.ts';
import type { SandboxTool } from '../../agent/manifest.ts';
import { withoutNulls } from '../../kernel/optional.ts';
import type { JsonSchema } from '../../kernel/json-schema.ts';
import type { ExecFigures, FilesRef, ToolOutcome } from '../../sandbox/events.ts';
import { earlierThanNext } from '../../sandbox/exec-path.ts';
import { SANDBOX_TOOL_INPUTS } from '../../sandbox/tools.ts';
import type { Running } from '../running.ts';
import type { DeclaredTool, ToolKind } from './tool-kind.ts';

const DESCRIPTIONS: Readonly<Record<SandboxTool, string>> = {
  bash: 'Runs a script in bash. Files below /workspace stay from call to call; nothing else does.',
  read: 'Reads a text file.',
  write: 'Writes a text file, and replaces the one that is there.',
  edit: 'Replaces a text in a file.',
  grep: 'Finds lines that a regular expression matches.',
  glob: 'Finds files by their paths.',
};

const DECLARED: Readonly<Record<SandboxTool, DeclaredTool>> = {
  bash: declared('bash'),
  read: declared('read'),
  write: declared('write'),
  edit: declared('edit'),
  grep: declared('grep'),
  glob: declared('glob'),
};

function declared(name: SandboxTool): DeclaredTool {
  const { $schema: _, ...schema } = z.toJSONSchema(SANDBOX_TOOL_INPUTS[name]);
  return { name, description: DESCRIPTIONS[name], inputSchema: schema as JsonSchema };
}

/** Built-in tools of the manifest: the Host runs them in the session's sandbox, one call after the other. */
export const sandboxTools: ToolKind = {
  declared: (manifest) => sandboxToolsOf(manifest).map((name) => DECLARED[name]),
  open: (at, { callId, name, input }) => {
    const actionId = at.nextId('ac');
    at.add({ type: 'sandbox.requested', data: { ...at.stamp, actionId, callId, name, input } });
  },
};

/** How a call ended. */
export interface SandboxCallEnd {
  readonly callId: string;
  readonly outcome: ToolOutcome;
  /** Null: it never reached a sandbox. */
  readonly ran: {
    readonly sandboxId: string;
    readonly exec: ExecFigures;
    /** The files after it; null: none. */
    readonly files: FilesRef | null;
    /** The sandbox was taken for the turn with this call. */
    readonly begins: boolean;
    /** What people should know of the beginning; null: nothing. */
    readonly note: string | null;
    /** Its worker died while it was under way, and it cannot be made twice: what it did is not known. */
    readonly isLost?: boolean;
  } | null;
}

/** Records the end of a call, unless the turn no longer needs it. Returns whether it was recorded. */
export function settleSandboxCall(at: Running, { callId, outcome, ran }: SandboxCallEnd): boolean {
  const asking = at.threads().find(({ thread }) => thread.sandboxCalls.some((call) => call.callId === callId));
  const call = asking?.thread.sandboxCalls.find((one) => one.callId === callId);
  if (asking === undefined || call === undefined) return false;
  const { stamp } = asking;
  if (ran !== null) {
    const { sandboxId, exec, files, begins, note, isLost = false } = ran;
    const state = { turnId: at.turnId, sandboxId, state: 'running', ...withoutNulls({ reason: note }) };
    if (begins) at.add({ type: 'sandbox.state', data: state });
    if (isLost) {
      const lost = { effectId: call.actionId, kind: 'sandbox', reason: 'lost', callId } as const;
      at.add({ type: 'effect.uncertain', data: { ...stamp, ...lost } });
    }
    const earlier = earlierThanNext(at.session.execs ?? []);
    at.add({ type: 'sandbox.exec', data: { ...stamp, callId, sandboxId, ...exec, files, earlier } });
  }
  const action = { actionId: call.actionId, generation: 1, kind: 'sandbox', callId, toolName: call.name } as const;
  at.add({ type: 'action.completed', data: { ...stamp, ...action, outcome } });
  return true;
}
