import type { Interaction } from '../action/state.ts';
import type { ActiveTurn } from './state.ts';
import type { TurnEvent } from './events.ts';

/** A sign-in that a turn waits for. */
export interface AwaitedSignIn {
  readonly interactionId: string;
  readonly vaultId: string;
  readonly credentialId: string;
  /** How often people had given the credential tokens when it was not accepted: once more, and the wait is over. */
  readonly grants: number;
}

type Asked = Pick<Interaction, 'interactionId' | 'vaultId' | 'credentialId' | 'grants'>;

/** The sign-in that an interaction asks for; null: it asks for none that a vault will show. */
function awaitedBy(asked: Asked): AwaitedSignIn | null {
  const { interactionId, vaultId, credentialId, grants } = asked;
  if (vaultId === undefined || credentialId === undefined || grants === undefined) return null;
  return { interactionId, vaultId, credentialId, grants };
}

/** Those of a whole turn. */
export function signInsOf({ work }: ActiveTurn): readonly AwaitedSignIn[] {
  return Object.values(work.interactions).flatMap((interaction) => awaitedBy(interaction) ?? []);
}

/** The same list, event by event; the same object if nothing changed. */
export function evolveSignIns(signIns: readonly AwaitedSignIn[], event: TurnEvent): readonly AwaitedSignIn[] {
  switch (event.type) {
    case 'interaction.opened': {
      const signIn = awaitedBy(event.data);
      return signIn === null ? signIns : [...signIns, signIn];
    }
    case 'interaction.withdrawn':
    case 'command.respond': {
      const { interactionId } = event.data;
      const left = signIns.filter((one) => one.interactionId !== interactionId);
      return left.length === signIns.length ? signIns : left;
    }
    default:
      return signIns;
  }
}
