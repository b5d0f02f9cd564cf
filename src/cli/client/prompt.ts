import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { EXIT, misuse, StartError } from '../../lib/start-error.ts';

const BYTES_MAX = 65_536;

/** Whether a person can be asked. */
export function isInteractive(): boolean {
  return process.stdin.isTTY && process.stderr.isTTY;
}

/** Asks a person. @throws StartError at the end of the input, or Ctrl-C */
export async function ask(question: string): Promise<string> {
  return await lineAfter(question, process.stderr);
}

/** Whether a person says yes. */
export async function isYes(question: string): Promise<boolean> {
  return /^y(es)?$/i.test((await ask(`${question} [y/N] `)).trim());
}

/**
 * A secret, asked for without showing what is typed, or the whole of standard input where no person is. Never an argument: those can be
 * read by every process of the machine, and stay in the history of the shell.
 * @throws StartError when there is none
 */
export async function readSecret(question: string): Promise<string> {
  const given = isInteractive() ? await askUnseen(question) : await readInput();
  const secret = given.trim();
  if (secret === '') return misuse('what is secret is read from standard input, and that was empty');
  return secret;
}

async function askUnseen(question: string): Promise<string> {
  const unseen = new Writable({ write: (_chunk, _encoding, done) => done() });
  process.stderr.write(question);
  try {
    return await lineAfter('', unseen);
  } finally {
    process.stderr.write('\n');
  }
}

async function lineAfter(question: string, output: NodeJS.WritableStream): Promise<string> {
  const lines = createInterface({ input: process.stdin, output, terminal: true });
  try {
    return await new Promise<string>((resolve, reject) => {
      const interrupted = (): void =>
        reject(new StartError('interrupted', { exitCode: EXIT.interrupted, code: 'interrupted' }));
      lines.on('SIGINT', interrupted).on('close', interrupted);
      lines.question(question, resolve);
    });
  } finally {
    lines.close();
  }
}

/** All of standard input. @throws StartError when that is longer than a secret, an address or a manifest is */
export async function readInput(bytesMax = BYTES_MAX): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin) {
    const buffer = Buffer.from(chunk);
    bytes += buffer.length;
    if (bytes > bytesMax) return misuse(`standard input has more than ${bytesMax} bytes`);
    chunks.push(buffer);
  }
  return Buffer.concat(chunks).toString('utf8');
}
