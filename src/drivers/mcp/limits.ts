/** What is accepted of a server. Beyond it, the answer ends in an outcome that says which limit it was. */
export const LIMITS = {
  /** Of one answer. */
  answerBytesMax: 8_388_608,
  /** Of an answer that is read without waiting for a place among the large ones. */
  smallAnswerBytes: 262_144,
  /** Messages of one stream, and how many of them at once and per second before it is read more slowly. */
  messagesMax: 50_000,
  messagesAtOnce: 200,
  messagesPerSecond: 50,
  /** HTTP requests that one call may lead to: a stream that breaks again and again, questions. */
  requestsMax: 40,
  tools: 256,
  listPages: 32,
  toolNameCharsMax: 256,
  descriptionCharsMax: 8_192,
  /** Of all declarations of a server. */
  toolsCharsMax: 1_048_576,
  schemaDepth: 64,
  valueDepth: 128,
  parts: 256,
  questionCharsMax: 4_000,
  questionSchemaCharsMax: 16_384,
  questionsPerRound: 8,
  rounds: 32,
  stateCharsMax: 65_536,
} as const;

/** Whether a value has more levels than `levels`; its size is bounded by the answer's, so this ends soon. */
export function isDeeper(value: unknown, levels: number): boolean {
  let level: readonly unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > levels) return true;
    level = level.flatMap((one) => (typeof one === 'object' && one !== null ? Object.values(one) : []));
  }
  return false;
}

/** A text cut to a length, marked where it was. */
export function cut(text: string, charsMax: number): string {
  return text.length <= charsMax ? text : `${text.slice(0, charsMax - 1).replace(/[\uD800-\uDBFF]$/, '')}…`;
}
