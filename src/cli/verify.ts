import { snapshotRef } from '../commands/repository.ts';
import { recordedPositions } from '../projections/recorded.ts';
import type { RecordedPosition } from '../projections/recorded.ts';
import type { ChainProblem, ChainVerifier, Witness } from '../streams/chain-verifier.ts';
import { followTo } from '../streams/follow-to.ts';
import { SealBrokenError, TenantErasedError } from '../streams/sealed-bytes.ts';
import { subjectOf } from '../streams/subjects.ts';
import type { Config } from '../app/config.ts';
import { EVENT_SCHEMAS } from '../app/event-schemas.ts';
import type { LogPorts } from '../app/log.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import { readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';
import { progressPrinter, throughput } from './progress.ts';
import { besideRunningHost } from './running-host.ts';
import type { RunningHost } from './running-host.ts';
import { VerifyState } from '../archive/audit/verify-state.ts';

/** Problems that are printed one by one; the rest is counted. */
const SHOWN_MAX = 100;
/** Commits that one reader reads ahead. */
const BUFFER = 500;
/** How often an interruptible run records how far it is, ms. */
const SAVE_EVERY_MS = 15_000;

/**
 * `agent-host audit verify [--state <file>]`: reads the whole log and checks that each aggregate is a chain of commits,
 * that every commit opens under its tenant's key in its place, that its events have their shape, and that the log still
 * has what snapshots and read models have seen of it. With `--state`, an interrupted run continues where it stopped.
 * Exit code 1 when anything is wrong.
 */
export async function auditVerify(config: Config, args: readonly string[]): Promise<number> {
  const { json, state: stateFile = null } = readArguments(args, operatorOptionsOf('audit verify')).values;
  return await besideRunningHost(config, 'audit', async (host) => {
    const begun = performance.now();
    const interrupted = interruption(stateFile !== null);
    const state = await VerifyState.load(stateFile, { schemas: EVENT_SCHEMAS, shards: host.log.source.shards });
    const { verifier } = state;
    const before = { commits: verifier.commits, events: verifier.events };
    for (const witness of await snapshotWitnesses(host.log)) {
      if (witness.position > state.positionOf(host.log.store.shardOf(witness.ref))) verifier.expect(witness);
    }
    for (let shard = 0; shard < host.log.source.shards; shard++) {
      await verifyStream(host.log, state, shard, interrupted);
    }
    const rate = throughput(
      { commits: verifier.commits - before.commits, events: verifier.events - before.events },
      begun,
    );
    if (interrupted.aborted) {
      await state.save();
      print([{ interrupted: true, commits: verifier.commits }], json, () => {
        return `interrupted after ${verifier.commits} commits (${rate}); the same command continues from here\n`;
      });
      return 1;
    }
    state.problems.push(...(await missingOnes(host, state)));
    report(state, { rate, json });
    await state.remove();
    return state.problems.length === 0 ? 0 : 1;
  });
}

async function verifyStream(log: LogPorts, state: VerifyState, shard: number, signal: AbortSignal): Promise<void> {
  const newest = await log.source.newest(shard, 'all');
  const progress = progressPrinter();
  const following = {
    shard,
    kinds: 'all',
    after: state.positionOf(shard),
    end: newest,
    signal,
    buffer: BUFFER,
  } as const;
  let savedAt = performance.now();
  for await (const batch of followTo(log.source, following)) {
    for (const followed of batch) state.take(shard, followed);
    progress.show({ group: 'log', shard, position: state.positionOf(shard), newest });
    if (performance.now() - savedAt < SAVE_EVERY_MS) continue;
    await state.save();
    savedAt = performance.now();
  }
  progress.done();
}

/** Snapshots name the commit that they were made from, by position, hash. */
export async function snapshotWitnesses({
  snapshots,
  folds,
}: Pick<LogPorts, 'snapshots' | 'folds'>): Promise<Witness[]> {
  const keys = new Set<string>();
  const listed = new AbortController();
  await snapshots.watch('', (change) => void (change.kind === 'put' && keys.add(change.entry.key)), listed.signal);
  listed.abort();
  const witnesses: Witness[] = [];
  for (const key of keys) {
    const ref = snapshotRef(key);
    const snapshot = ref === null ? null : await folds.get(key);
    if (ref === null || snapshot === null) continue;
    // Written by the repository, in this version of its form.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const { position, hash } = JSON.parse(snapshot.value) as { position: number; hash: string };
    witnesses.push({ ref, position, hash });
  }
  return witnesses;
}

/** Commits that were seen elsewhere and are not in the log: its end may have been cut off, which no chain shows. */
export async function missingOnes(
  host: { readonly log: Pick<LogPorts, 'store' | 'keyring'>; readonly pool: RunningHost['pool'] },
  { verifier }: Pick<VerifyState, 'verifier'>,
): Promise<ChainProblem[]> {
  const problems: ChainProblem[] = [];
  const check = async (seen: readonly RecordedPosition[], by: string): Promise<void> => {
    for (const { ref, position } of seen) {
      if (await isLost(host.log, verifier, { ref, position })) problems.push(lost(verifier, { ref, position }, by));
    }
  };
  await check(verifier.unseen, 'a snapshot');
  try {
    for await (const page of recordedPositions(host.pool)) await check(page, 'a read model');
  } catch (error) {
    if (!isUnavailableError(error, 'database')) throw error;
    process.stderr.write('the database is away: the end of the log was not compared with the read models\n');
  }
  return problems;
}

async function isLost(
  log: Pick<LogPorts, 'store' | 'keyring'>,
  verifier: ChainVerifier,
  { ref, position }: RecordedPosition,
): Promise<boolean> {
  if (position <= (verifier.heads.get(subjectOf(ref))?.position ?? 0)) return false;
  // What was stored since its stream was read is not lost.
  if ((await log.store.head(ref)) >= position) return false;
  return !(await isDeleted(log.keyring, ref.tenant));
}

/** Whether a tenant has left the log: its key is destroyed before its commits go, and the tombstone of the key stays. */
async function isDeleted(keyring: LogPorts['keyring'], tenant: string): Promise<boolean> {
  if (keyring.unfinished.includes(tenant)) return true;
  try {
    await keyring.obtain(tenant);
    return false;
  } catch (error) {
    if (error instanceof TenantErasedError) return true;
    if (error instanceof SealBrokenError) return false;
    throw error;
  }
}

function lost(verifier: ChainVerifier, { ref, position }: RecordedPosition, by: string): ChainProblem {
  const subject = subjectOf(ref);
  const head = verifier.heads.get(subject);
  const end =
    head === undefined ? 'has nothing of it' : `ends with commit ${head.rev} (${head.commitId}) at ${head.position}`;
  const what = `${by} has seen a commit here, the log ${end}: the newest commits are missing`;
  return { subject, position, commitId: null, what };
}

function report(
  { verifier, problems }: VerifyState,
  { rate, json }: { rate: string; json: boolean | undefined },
): void {
  for (const problem of problems.slice(0, SHOWN_MAX)) {
    const { subject, position, commitId, what } = problem;
    print([problem], json, () => `${subject} at ${position}${commitId === null ? '' : ` (${commitId})`}: ${what}\n`);
  }
  const { commits, heads, erased, unchained } = verifier;
  const old = unchained === 0 ? '' : `, ${unchained} from before commits were chained`;
  const sums = { interrupted: false, commits, aggregates: heads.size, unchained, erased, problems: problems.length };
  print([sums], json, () => {
    return `${commits} commits of ${heads.size} aggregates verified (${rate})${old}, ${erased} erased, ${problems.length} problems\n`;
  });
}

/** Ctrl-C and SIGTERM, for a run that can continue later; otherwise they end the process as usual. */
function interruption(resumable: boolean): AbortSignal {
  const interrupted = new AbortController();
  if (resumable) for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupted.abort());
  return interrupted.signal;
}
