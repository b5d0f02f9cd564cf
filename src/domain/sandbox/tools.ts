import { z } from 'zod';
import { text } from '../kernel/schemas.ts';

/** Characters of a command, and of what a call writes or replaces. A larger file is made by a command. */
const COMMAND_MAX = 131_072;
const CONTENT_MAX = 1_048_576;
/** Of a path before it is resolved. */
const PATH_MAX = 4_096;
const PATTERN_MAX = 4_096;
/** Default and maximum time of one call, seconds. */
export const CALL_SECONDS = 60;
export const CALL_SECONDS_MAX = 600;
/** Default matches of grep, and maximum matches and paths. */
export const MATCHES = 100;
export const MATCHES_MAX = 1_000;

const path = text(1, PATH_MAX).describe('Path of a file below /workspace, absolute or relative to it');
const directory = text(1, PATH_MAX).describe('Path of a directory or file below /workspace; absent: all of it');

/** What the model sends to each built-in tool. */
export const SANDBOX_TOOL_INPUTS = {
  bash: z.strictObject({
    command: text(1, COMMAND_MAX).describe('Script for bash, run in /workspace'),
    timeoutSeconds: z.int().min(1).max(CALL_SECONDS_MAX).optional().describe('Seconds it may take; 60 when absent'),
  }),
  read: z.strictObject({
    path,
    offset: z.int().min(0).optional().describe('Lines to leave out at the start'),
    limit: z.int().min(1).optional().describe('Lines to return at most'),
  }),
  write: z.strictObject({ path, content: text(0, CONTENT_MAX) }),
  edit: z.strictObject({
    path,
    oldText: text(1, CONTENT_MAX).describe('Text to replace; it is there exactly once unless replaceAll is true'),
    newText: text(0, CONTENT_MAX),
    replaceAll: z.boolean().optional(),
  }),
  grep: z.strictObject({
    pattern: text(1, PATTERN_MAX).describe('Regular expression of RE2: no look-around, no back-references'),
    path: directory.optional(),
    glob: text(1, PATTERN_MAX).optional().describe('Only files whose path fits, such as *.ts or src/**/*.ts'),
    ignoreCase: z.boolean().optional(),
    maxResults: z.int().min(1).max(MATCHES_MAX).optional(),
  }),
  glob: z.strictObject({
    pattern: text(1, PATTERN_MAX).describe('Such as **/*.ts; * and ? stay within a name, ** goes over directories'),
    path: directory.optional(),
  }),
};

export type SandboxToolName = keyof typeof SANDBOX_TOOL_INPUTS;

const LOOKS_ONLY: ReadonlySet<string> = new Set<SandboxToolName>(['read', 'grep', 'glob']);

/** Whether a tool looks at files only, so that a call of it can be made again. */
export function looksOnly(name: string): boolean {
  return LOOKS_ONLY.has(name);
}

/** A call of a built-in tool, with an input that has been checked against its schema. */
export type SandboxToolCall = {
  [Name in SandboxToolName]: { readonly name: Name; readonly input: z.infer<(typeof SANDBOX_TOOL_INPUTS)[Name]> };
}[SandboxToolName];

export interface GrepMatch {
  readonly path: string;
  /** From 1. */
  readonly line: number;
  readonly text: string;
}

/** What a completed call returns to the model. Texts are valid in every store: no NUL, no lone surrogate. */
export interface SandboxResults {
  readonly bash: {
    readonly stdout: string;
    readonly stderr: string;
    readonly exitCode: number;
    readonly truncated?: true;
  };
  readonly read: { readonly content: string; readonly truncated?: true };
  readonly write: { readonly path: string; readonly size: number };
  readonly edit: { readonly path: string; readonly replacements: number };
  readonly grep: { readonly matches: readonly GrepMatch[]; readonly truncated?: true };
  readonly glob: { readonly paths: readonly string[]; readonly truncated?: true };
}

/** Why a call failed, as the model is told. */
export const SANDBOX_FAILURES = [
  'not_found',
  'invalid_path',
  'is_directory',
  'no_match',
  'not_unique',
  'timeout',
  'out_of_memory',
  'limit_exceeded',
  'sandbox_lost',
] as const;
export type SandboxFailure = (typeof SANDBOX_FAILURES)[number];
