const INDENT = '  ';

/**
 * A value as indented JSON, of which no more is made than `limit` characters: that of a megabyte, deeply nested, would be a
 * hundred. Of a value that is not JSON nothing is made.
 */
export function jsonText(value: unknown, limit: number): { readonly text: string; readonly isCut: boolean } {
  const writer = new Writer(limit);
  writer.value(value, '\n');
  return { text: writer.text, isCut: writer.isFull };
}

class Writer {
  readonly #parts: string[] = [];
  #left: number;
  isFull = false;

  constructor(limit: number) {
    this.#left = limit;
  }

  get text(): string {
    return this.#parts.join('');
  }

  /** @param line what begins a line at the place of the value */
  value(value: unknown, line: string): void {
    if (this.isFull) return;
    if (Array.isArray(value)) this.#all('[]', line, value.entries(), false);
    else if (typeof value === 'object' && value !== null) this.#all('{}', line, Object.entries(value), true);
    // Longer than its text by its quotes at least: what is past the limit is not looked at.
    else if (typeof value === 'string')
      this.#put(JSON.stringify(value.slice(0, this.#left)), value.length > this.#left);
    else this.#put(JSON.stringify(value) ?? '');
  }

  #all(
    brackets: '[]' | '{}',
    line: string,
    members: Iterable<readonly [number | string, unknown]>,
    isNamed: boolean,
  ): void {
    const inner = `${line}${INDENT}`;
    let isEmpty = true;
    this.#put(brackets.charAt(0));
    for (const [name, member] of members) {
      if (this.isFull) return;
      this.#put(isEmpty ? inner : `,${inner}`);
      isEmpty = false;
      if (isNamed) {
        this.value(String(name), inner);
        this.#put(': ');
      }
      this.value(member, inner);
    }
    this.#put(isEmpty ? brackets.charAt(1) : `${line}${brackets.charAt(1)}`);
  }

  #put(text: string, isCut = false): void {
    if (this.isFull) return;
    this.isFull = isCut || text.length > this.#left;
    this.#parts.push(this.isFull ? text.slice(0, this.#left) : text);
    this.#left -= text.length;
  }
}
