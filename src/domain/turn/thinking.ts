import { z } from 'zod';

/** What a provider has signed or encrypted of a part, as it wants to have it back, by the names of its library. */
const seal = z.record(z.string(), z.record(z.string(), z.string())).optional();

/**
 * The order of an answer that a model has thought for, with what its provider needs to continue thinking after the results of
 * the calls: what it thought, and signatures of texts and calls. Kept with the message, given back to the same model of the
 * same provider unaltered, and shown to no reader.
 */
export const thinkingSchema = z.strictObject({
  provider: z.string(),
  model: z.string(),
  parts: z.array(
    z.discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('thought'), text: z.string(), seal }),
      /** The next so many UTF-16 units of the message's text. */
      z.strictObject({ kind: z.literal('text'), chars: z.int().min(0), seal }),
      /** The next of the message's calls. */
      z.strictObject({ kind: z.literal('call'), seal }),
    ]),
  ),
});

export type Thinking = z.infer<typeof thinkingSchema>;
export type Seal = z.infer<typeof seal>;

const sizes = new WeakMap<Thinking, number>();

/** Size in characters of JSON text. */
export function sizeOfThinking(thinking: Thinking): number {
  const known = sizes.get(thinking) ?? JSON.stringify(thinking).length;
  sizes.set(thinking, known);
  return known;
}
