import { z } from 'zod';
import { StartError } from '../lib/start-error.ts';
import { addressOf, httpAddress, listen } from './variables.ts';
import type { Address } from './variables.ts';

export const consoleVariables = {
  AGENT_HOST_CONSOLE_LISTEN: z
    .string()
    .refine((text) => text === 'off' || listen.safeParse(text).success, 'must be host:port, or off')
    .optional(),
  AGENT_HOST_CONSOLE_HOST: httpAddress.optional(),
};

/** The listener for browsers, and what it shows. */
export interface ConsoleConfig {
  readonly listen: Address;
  /** Whether this address was asked for; the usual one may give way to another. */
  readonly isAsked: boolean;
  /** The Host that it shows; absent: this one. */
  readonly host: string | undefined;
}

const USUAL = '127.0.0.1:7072';

/**
 * On by default where the Host has its servers with it; in a cluster a node has a console that is given the role or an
 * address. @param named the roles that were named @throws StartError
 */
export function consoleOf(
  env: z.infer<z.ZodObject<typeof consoleVariables>>,
  { named, isEmbedded }: { readonly named: readonly string[] | undefined; readonly isEmbedded: boolean },
): ConsoleConfig | null {
  const { AGENT_HOST_CONSOLE_LISTEN: at, AGENT_HOST_CONSOLE_HOST: host } = env;
  const isAlone = named?.every((role) => role === 'console') === true;
  if (isAlone && (host === undefined || at === 'off'))
    throw new StartError(
      'a node with the role console alone needs AGENT_HOST_CONSOLE_HOST, the address of a Host to show',
    );
  const isWanted = named === undefined ? isEmbedded : named.includes('console');
  if (at === 'off' || (at === undefined && !isWanted)) return null;
  return { listen: addressOf(at ?? USUAL), isAsked: at !== undefined, host };
}
