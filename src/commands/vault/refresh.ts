import type { Decision } from '../../domain/kernel/decision.ts';
import { isRejection } from '../../domain/kernel/rejection.ts';
import { reachCredential } from '../../domain/vault/decide.ts';
import {
  decideRefreshed,
  decideRefreshFailed,
  decideRefused,
  decideStartRefresh,
  isUsable,
} from '../../domain/vault/refresh.ts';
import type { RefreshTurn } from '../../domain/vault/refresh.ts';
import type { VaultEvent } from '../../domain/vault/events.ts';
import type { Credential, VaultState } from '../../domain/vault/state.ts';
import type { OauthClient } from '../../drivers/oauth/port.ts';
import { delay } from '../../lib/backoff.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { OauthSecret, VaultPlace } from './secrets.ts';
import type { VaultDeps } from './vaults.ts';
import { vaultRef } from './vaults.ts';

export interface TokenSourceDeps extends VaultDeps {
  readonly oauth: OauthClient;
  readonly clock: Clock;
  /** Named in the log as who did it. */
  readonly actor: string;
  /** How long a node that refreshes has before another considers it dead; longer than one answer may take, ms. */
  readonly leaseMs: number;
}

/** A token that can be sent now, or why there is none. */
export type TokenState =
  | { readonly kind: 'token'; readonly token: string; readonly generation: number; readonly grants: number }
  /** A person has to sign in, or store another; `grants`: how often people have given it tokens. */
  | { readonly kind: 'needs_auth'; readonly grants: number }
  /** The token server is unavailable. */
  | { readonly kind: 'unavailable'; readonly grants: number }
  | { readonly kind: 'gone' };

export interface TokenOf {
  readonly place: VaultPlace;
  readonly credentialId: string;
  /** The generation that the resource server has just refused; null: none. */
  readonly refused: number | null;
  readonly causation: string;
}

/** A token that expires sooner is replaced before it is used, ms. */
const EARLY_MS = 30_000;
/** How long a caller waits for another node that refreshes, and how often it checks, ms. */
const WAIT_MS = 60_000;
const LOOK_MS = 100;

/**
 * Tokens of credentials, refreshed when they have to be. Of all nodes and turns that need one at the same moment, one
 * asks the server, and the log decides which: it records that it is about to use the refresh token before it does.
 *
 *   intent recorded → server asked → answer stored where the intent says → answer recorded
 *
 * A node that dies after the answer was stored leaves it to be found; before that, the refresh token is tried once more,
 * because the server may never have seen it. The old tokens stay until the new ones are stored.
 */
export class TokenSource {
  readonly #deps: TokenSourceDeps;
  readonly #running = new Map<string, Promise<TokenState>>();

  constructor(deps: TokenSourceDeps) {
    this.#deps = deps;
  }

  /** @throws UnavailableError when the log or the secret store does not answer */
  async token(of: TokenOf): Promise<TokenState> {
    const key = `${of.place.tenant} ${of.place.vaultId} ${of.credentialId} ${of.refused ?? ''}`;
    const running = this.#running.get(key);
    if (running !== undefined) return await running;
    const mine = this.#token(of).finally(() => this.#running.delete(key));
    this.#running.set(key, mine);
    return await mine;
  }

  async #token(of: TokenOf): Promise<TokenState> {
    const deadline = performance.now() + WAIT_MS;
    let lookedFor: string | null = null;
    let grants = 0;
    while (performance.now() < deadline) {
      const known = await this.#credential(of);
      if (known === null) return { kind: 'gone' };
      grants = known.grants;
      if (known.state === 'needs_auth') return { kind: 'needs_auth', grants };
      if (this.#isFresh(known, of, EARLY_MS)) {
        const found = await this.#read(of, known);
        if (found !== null) return found;
        continue;
      }
      const turn = await this.#start(of, known, lookedFor);
      if (turn.kind === 'lapsed') {
        lookedFor = turn.refreshing.refreshId;
        await this.#takeUp(of, known, turn.refreshing);
      } else if (turn.kind === 'ours') await this.#refresh(of, turn.credential, turn.refreshId);
      else {
        const ended = await this.#meanwhile(of, known, turn);
        if (ended !== null) return ended;
      }
    }
    return { kind: 'unavailable', grants };
  }

  /** What a caller gets while it can do nothing; null: it waits, and asks again. */
  async #meanwhile(of: TokenOf, known: Credential, turn: RefreshTurn): Promise<TokenState | null> {
    // It is refreshed early: until then the current token is valid.
    if (this.#isFresh(known, of, 0)) return await this.#read(of, known);
    if (turn.kind === 'later') return { kind: 'unavailable', grants: known.grants };
    if (turn.kind === 'hopeless') {
      const { generation } = known;
      const refused = { credentialId: of.credentialId, generation };
      await this.#record(of, (state) => decideRefused(state, refused));
      return null;
    }
    if (turn.kind === 'theirs') await delay(LOOK_MS);
    return null;
  }

  #isFresh(known: Credential, { refused }: TokenOf, earlyMs: number): boolean {
    return known.generation !== refused && isUsable(known, this.#deps.clock() + earlyMs);
  }

  /** Null: it has been replaced since. */
  async #read({ place, credentialId }: TokenOf, { secretId, ...known }: Credential): Promise<TokenState | null> {
    if (secretId === null) return null;
    const secret = await this.#deps.secrets.get(place, { credentialId, secretId });
    if (secret === null || secret.type === 'sign_in') return null;
    const { generation, grants } = known;
    return { kind: 'token', token: secret.type === 'bearer' ? secret.token : secret.accessToken, generation, grants };
  }

  async #credential({ place, credentialId }: TokenOf): Promise<Credential | null> {
    const { state } = await this.#deps.vaults.refresh(refOf(place));
    const known = reachCredential(state, null, credentialId);
    return isRejection(known) ? null : known;
  }

  async #start(of: TokenOf, known: Credential, lookedFor: string | null) {
    const { clock, leaseMs } = this.#deps;
    const { credentialId } = of;
    const refreshId = newId('rf');
    const ids = { credentialId, generation: known.generation, refreshId, secretId: newId('se') };
    const turn = await this.#record(of, (state) =>
      decideStartRefresh(state, { ...ids, nowMs: clock(), leaseMs, lookedFor }),
    );
    return turn.kind === 'ours' ? { ...turn, refreshId } : turn;
  }

  /** Another node's answer, if it was stored before that node died. */
  async #takeUp(
    of: TokenOf,
    { generation }: Credential,
    { refreshId, secretId }: { readonly refreshId: string; readonly secretId: string },
  ): Promise<void> {
    const { credentialId, place } = of;
    const secret = await this.#deps.secrets.get(place, { credentialId, secretId });
    if (secret?.type !== 'oauth') return;
    await this.#settle(of, { credentialId, generation, refreshId, secretId, expiresAt: secret.expiresAt });
  }

  async #refresh(of: TokenOf, known: Credential, refreshId: string): Promise<void> {
    const { secrets, oauth, clock } = this.#deps;
    const { credentialId, place } = of;
    const { generation, refresh, secretId: oldId } = known;
    await faultPoint('refresh.recorded');
    const { state } = await this.#deps.vaults.load(refOf(place));
    const now = reachCredential(state, null, credentialId);
    const under = isRejection(now) ? null : now.refreshing;
    const old = oldId === null ? null : await secrets.get(place, { credentialId, secretId: oldId });
    const isOurs = under?.refreshId === refreshId && Date.parse(under.until) > clock();
    if (refresh === null || old?.type !== 'oauth' || old.refreshToken === null || !isOurs) return;
    const { refreshToken, clientSecret } = old;
    const answer = await oauth.refresh({ ...refresh, refreshToken, clientSecret });
    await faultPoint('refresh.answered');
    if (answer.kind === 'failed') {
      const isRefused = of.refused === generation;
      const failed = { credentialId, generation, refreshId, reason: answer.reason, isRefused, nowMs: clock() };
      await this.#record(of, (newest) => decideRefreshFailed(newest, failed));
      return;
    }
    const { accessToken, expiresInSeconds, ...given } = answer.tokens;
    const expiresAt = expiresInSeconds === null ? null : timestamp(clock() + expiresInSeconds * 1_000);
    const fresh = { accessToken, refreshToken: given.refreshToken ?? refreshToken, clientSecret, expiresAt };
    const secret: OauthSecret = { type: 'oauth', ...fresh };
    await secrets.put(place, { credentialId, secretId: under.secretId }, secret);
    await faultPoint('refresh.stored');
    await this.#settle(of, { credentialId, generation, refreshId, secretId: under.secretId, expiresAt });
  }

  async #settle(of: TokenOf, refreshed: Parameters<typeof decideRefreshed>[1]): Promise<void> {
    const unnamed = await this.#record(of, (state) => decideRefreshed(state, refreshed));
    await faultPoint('refresh.settled');
    await this.#deps.secrets.remove(of.place, unnamed);
  }

  async #record<R>({ place, causation }: TokenOf, decide: (state: VaultState) => Decision<VaultEvent, R>): Promise<R> {
    const { loop, vaults, actor } = this.#deps;
    const outcome = await loop.execute(vaults, refOf(place), { actor, causation, decide });
    // Such decisions refuse nothing: what they find is their reply.
    if (outcome.kind === 'rejected') throw new Error(`a vault refused a refresh: ${outcome.message}`);
    return outcome.reply;
  }
}

function refOf({ tenant, vaultId }: VaultPlace): AggregateRef {
  return vaultRef(tenant, vaultId);
}
