import { RE2JS } from 're2js';
import { spend } from './bounded-work.ts';

/**
 * Patterns come from tenants and run in the one thread that serves all clients, so they are matched in linear time,
 * whatever they contain. Look-around and back-references cannot be matched that way and are refused. The time is linear
 * in the text, times the size of the pattern, which a repetition of a few characters makes arbitrarily large.
 */
export function linearPattern(pattern: string): { test: (text: string) => boolean; toString: () => string } {
  spend(STEPS_OF_COMPILING * patternSize(pattern));
  const expression = RE2JS.compile(pattern);
  const size = expression.programSize();
  const test = (text: string): boolean => {
    spend(size * (1 + text.length));
    return expression.test(text);
  };
  // The validator distinguishes patterns by their text.
  return { test, toString: () => pattern };
}
linearPattern.code = 'linearPattern';

/** For each instruction of the program. */
const STEPS_OF_COMPILING = 600;
/** A class by property is a table of hundreds of ranges. */
const PROPERTY_SIZE = 25;

/** For literal text, a property, an escaped character, a class, a repetition, and anything else. */
const TOKENS =
  /\\Q[\s\S]*?(?:\\E|$)|\\[pP](?:\{[^}]*\}?|[\s\S])|\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*\]?|\{(\d+)(?:,(\d*))?\}|[\s\S]/gu;

/** Roughly how many instructions a pattern compiles to: what is repeated counts as often as it may be repeated. */
export function patternSize(pattern: string): number {
  const outer: number[] = [];
  let [sum, last] = [0, 0];
  for (const [token, least, most] of pattern.matchAll(TOKENS)) {
    if (token === '(') {
      outer.push(sum);
      sum = 0;
    } else if (token === ')') {
      last = sum + 1;
      sum = (outer.pop() ?? 0) + last;
    } else if (least !== undefined) {
      const times = Math.max(1, Number(most === undefined || most === '' ? least : most));
      sum += last * (times - 1);
      last *= times;
    } else {
      last = /^\\p|^\[.*\\p/is.test(token) ? PROPERTY_SIZE * token.length : token.length;
      sum += last;
    }
  }
  return outer.reduce((total, open) => total + open, sum);
}
