import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { schemaProblem } from '../../domain/kernel/json-schema.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { cut, isDeeper, LIMITS } from './limits.ts';
import { modelName } from './names.ts';
import type { McpObject, McpTool, McpTools } from './port.ts';

/** Of everything that a server declares about a tool, what is used; the rest counts for the digest only. */
const declaration = z.looseObject({
  name: z.string().min(1).max(LIMITS.toolNameCharsMax),
  title: z.unknown().optional(),
  description: z.string().optional(),
  inputSchema: z.looseObject({ type: z.literal('object') }),
  outputSchema: z.looseObject({}).nullish(),
  annotations: z
    .looseObject({
      readOnlyHint: z.unknown().optional(),
      idempotentHint: z.unknown().optional(),
      destructiveHint: z.unknown().optional(),
    })
    .nullish(),
  execution: z.looseObject({ taskSupport: z.unknown().optional() }).nullish(),
});

type Declaration = z.infer<typeof declaration>;

const REFUSED_SHOWN = 20;

/** The tools of one listing, as they arrive. */
export class Declarations {
  readonly #server: string;
  readonly #only: ReadonlySet<string> | null;
  readonly #tools = new Map<string, McpTool>();
  readonly #names = new Set<string>();
  readonly #refused: { readonly tool: string; readonly reason: string }[] = [];
  #refusedCount = 0;
  #chars = 0;

  constructor(server: string, only: readonly string[] | null) {
    this.#server = server;
    this.#only = only === null ? null : new Set(only);
  }

  /** Takes what a server sent as one tool. Compiling schemas takes a while, so others get their turn in between. */
  async add(sent: unknown): Promise<void> {
    const parsed = declaration.safeParse(sent);
    if (!parsed.success) {
      const named = z.looseObject({ name: z.string() }).safeParse(sent);
      this.refuse(named.success ? named.data.name : '?', 'its declaration is not one of a tool');
      return;
    }
    const { name } = parsed.data;
    if (this.#only !== null && !this.#only.has(name)) return;
    const reason = this.#overfull(name) ?? this.#take(parsed.data);
    if (reason !== null) this.refuse(name, reason);
    else await setImmediate();
  }

  refuse(tool: string, reason: string): void {
    this.#refusedCount += 1;
    if (this.#refused.length < REFUSED_SHOWN) this.#refused.push({ tool: cut(tool, 64), reason });
  }

  result(revision: string): McpTools {
    const tools = [...this.#tools.values()].sort((a, b) => (a.tool < b.tool ? -1 : 1));
    return { kind: 'tools', tools, refused: this.#refused, refusedCount: this.#refusedCount, revision };
  }

  /** What it weighs in memory, roughly, bytes. */
  get weight(): number {
    return 2 * this.#chars + 1_000;
  }

  #overfull(name: string): string | null {
    if (this.#tools.has(name)) return 'another tool has its name';
    if (this.#tools.size >= LIMITS.tools)
      return `the server has more than ${LIMITS.tools} tools; name those that are wanted`;
    return null;
  }

  /** Why a tool cannot be offered; null: it was taken. */
  #take(sent: Declaration): string | null {
    if (sent.execution?.taskSupport === 'required')
      return 'it can only be called as a task, which this Host does not offer';
    if (isDeeper(sent, LIMITS.schemaDepth)) return 'its declaration is nested too deeply';
    const name = modelName(this.#server, sent.name);
    if (this.#names.has(name)) return 'its name for the model is that of another tool';
    const { inputSchema } = sent;
    const problem = schemaProblem(inputSchema);
    if (problem !== null) return `its inputSchema cannot be used: ${cut(problem, 200)}`;
    const outputSchema = usableOrNull(sent.outputSchema);
    const description = cut(sent.description ?? '', LIMITS.descriptionCharsMax);
    const chars = sent.name.length + description.length + JSON.stringify([inputSchema, outputSchema]).length;
    if (this.#chars + chars > LIMITS.toolsCharsMax) {
      return 'the declarations of the server are too large together; name the tools that are wanted';
    }
    this.#chars += chars;
    this.#names.add(name);
    const tool = { name, tool: sent.name, description, inputSchema, outputSchema, ...hintsOf(sent) };
    this.#tools.set(sent.name, { ...tool, digest: digestOf(sent) });
    return null;
  }
}

/** Over what a person approves; icons and private members may change with each answer. */
function digestOf({ name, title, description, inputSchema, outputSchema, annotations }: Declaration): string {
  return sha256Hex(canonicalJson({ name, title, description, inputSchema, outputSchema, annotations }));
}

function usableOrNull(schema: McpObject | null | undefined): McpObject | null {
  if (schema === null || schema === undefined) return null;
  return schemaProblem(schema) === null ? schema : null;
}

function hintsOf({ annotations }: Declaration): Pick<McpTool, 'readOnly' | 'idempotent' | 'destructive'> {
  const readOnly = annotations?.readOnlyHint === true;
  const idempotent = annotations?.idempotentHint === true;
  return { readOnly, idempotent, destructive: !readOnly && annotations?.destructiveHint !== false };
}
