/**
 * A reason not to start, or not to continue, that the person at the terminal can act on. The message is one plain line: what is wrong, and
 * what to do. `main` prints it without a stack and exits 1; anything else that is thrown is a defect and keeps its stack.
 */
export class StartError extends Error {
  override readonly name = 'StartError';
}
