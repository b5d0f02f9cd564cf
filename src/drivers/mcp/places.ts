import { FairBudget } from '../../lib/fair-budget.ts';

export interface PlacesOptions {
  /** On this node, of one tenant, and of one tenant at one server. */
  readonly total: number;
  readonly perTenant: number;
  readonly perServer: number;
}

/**
 * Something that calls hold while they run. The server's share is taken first: calls that wait for a server that hangs
 * hold nothing of their tenant's.
 */
export class Places {
  readonly #servers: FairBudget;
  readonly #tenants: FairBudget;

  constructor({ total, perTenant, perServer }: PlacesOptions) {
    this.#servers = new FairBudget({ total: Number.MAX_SAFE_INTEGER, perName: perServer });
    this.#tenants = new FairBudget({ total, perName: perTenant });
  }

  /** Resolves to the function that gives it back, once. @throws the signal's reason */
  async take(tenant: string, origin: string, signal: AbortSignal): Promise<() => void> {
    const ofServer = await this.#servers.take(`${tenant} ${origin}`, 1, signal);
    try {
      const ofTenant = await this.#tenants.take(tenant, 1, signal);
      return () => {
        ofTenant();
        ofServer();
      };
    } catch (error) {
      ofServer();
      throw error;
    }
  }
}
