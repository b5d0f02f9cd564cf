import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Named instants at which a crash is dangerous. Production code awaits one where the order of two effects matters; a
 * test decides what happens there (die, wait, throw). Without a handler it costs one map look-up.
 */
export type FaultPoint =
  | 'topology.made'
  | 'reshard.step'
  | 'watch.counted'
  | 'append.started'
  | 'append.acknowledged'
  | 'command.appended'
  | 'turn.claimed'
  | 'budget.reserved'
  | 'model.called'
  | 'model.answered'
  | 'budget.settled'
  | 'model.recorded'
  | 'action.claimed'
  | 'action.settled'
  | 'projection.applied'
  | 'dispatcher.segment-written'
  | 'dispatcher.checkpointed'
  | 'session.deleted'
  | 'session.erased'
  | 'session.forked'
  | 'session.fork-deleted'
  | 'budgets.listed'
  | 'credential.stored'
  | 'credential.recorded'
  | 'vault.deleted'
  | 'key.rewrapped'
  | 'sign-in.recorded'
  | 'refresh.recorded'
  | 'refresh.answered'
  | 'refresh.stored'
  | 'refresh.settled'
  | 'artifact.reserved'
  | 'artifact.bytes-stored'
  | 'artifact.recorded'
  | 'artifact.session-told'
  | 'artifact.removal-begun'
  | 'artifact.removed'
  | 'artifact.bytes-removed'
  | 'outputs.stored'
  | 'outputs.recorded'
  | 'outputs.exported'
  | 'sandbox.added'
  | 'sandbox.deleted'
  | 'sandbox.begun'
  | 'sandbox.executed'
  | 'sandbox.recorded'
  | 'deletion.quiet'
  | 'deletion.key-destroyed'
  | 'deletion.log-erased'
  | 'deletion.rows-erased'
  | 'deletion.objects-erased'
  | 'deletion.tenant-erased'
  | 'deletion.scrubbed'
  | 'deletion.removed'
  | 'deletion.finished';

const handlers = new Map<FaultPoint, () => Promise<void> | void>();

/** What a part of this process does at its points; null: nothing. */
type Handle = (name: FaultPoint) => Promise<void> | void;
const part = new AsyncLocalStorage<Handle>();

/** Reached in production code; runs the test's handler, if one is set. */
export function faultPoint(name: FaultPoint): Promise<void> | void {
  const handler = handlers.get(name);
  return handler === undefined ? part.getStore()?.(name) : handler();
}

/** Runs something whose points, and those of whatever it starts, are handled by themselves: one of several in a process. */
export function withFaultPoints<T>(handle: Handle, work: () => T): T {
  return part.run(handle, work);
}

/** A callback that is called by others, as a part of what makes it. */
export function ofThisPart<A extends readonly unknown[]>(callback: (...args: A) => void): (...args: A) => void {
  return AsyncLocalStorage.bind(callback);
}

/** Sets what happens at a point; returns the function that removes it. */
export function onFaultPoint(name: FaultPoint, handler: () => Promise<void> | void): () => void {
  handlers.set(name, handler);
  return () => handlers.delete(name);
}

/**
 * Arms points from a text such as `model.answered=kill` or `turn.claimed=kill@3` (at the third time); used by the child
 * processes of the crash tests. `kill` is SIGKILL to this process, as if the machine were gone.
 */
export function armFaultPoints(text: string): void {
  for (const entry of text.split(',').filter((part) => part !== '')) {
    const match = /^([a-z.-]+)=kill(?:@(\d+))?$/.exec(entry);
    if (match === null) throw new Error(`not a fault point: ${entry}`);
    let left = Number(match[2] ?? '1');
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a name that is not a point is never reached
    onFaultPoint(match[1] as FaultPoint, () => {
      if (--left === 0) process.kill(process.pid, 'SIGKILL');
    });
  }
}
