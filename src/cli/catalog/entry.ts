/** An option of a command: what `parseArgs` of Node takes, and what help and completion show. */
export interface Option {
  readonly type: 'string' | 'boolean';
  readonly short?: string;
  readonly multiple?: boolean;
  /** What stands for its value in help, such as `<file>`. */
  readonly value?: string;
  readonly what: string;
}

/** What is known of a command without loading it. */
export interface Entry {
  /** What follows its name. */
  readonly words: string;
  /** One line. */
  readonly summary: string;
  readonly options: Readonly<Record<string, Option>>;
  /** Complete command lines. */
  readonly examples: readonly string[];
}
