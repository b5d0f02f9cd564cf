import { withDescendants } from '#src/drivers/sandbox/child-process.ts';
import { delay } from '#src/lib/backoff.ts';
import type { KubernetesTestServer } from '../support/kubernetes-api.ts';
import type { Random } from '../support/random.ts';
import type { Context, Fault } from './faults.ts';
import { pick } from './pick.ts';

/** What is done to sandboxes, and to the cluster that has their pods. */

const KILLS = 4;
const DOWN_MS = { min: 0, max: 5_000 };

export const BOX_FAULTS: readonly Fault[] = [
  {
    name: 'kill -9 processes of sandboxes',
    weight: 3,
    touches: 'boxes',
    run: async ({ cluster, random }) => {
      for (let kills = 0; kills < KILLS; kills++) {
        const started = cluster.of('engine').flatMap(({ host }) => withDescendants(host.pid).slice(1));
        if (started.length > 0) kill(pick(random, started));
        await delay(random.int(0, 500));
      }
    },
  },
  ofCluster('kill -9 the API server of Kubernetes', async (server, random) => {
    await server.goAway();
    await delay(random.int(DOWN_MS.min, DOWN_MS.max));
    await server.comeBack();
  }),
  ofCluster('the watches of the API server are cut and too old', async (server) => {
    server.store.forget();
    server.cutWatches();
    await Promise.resolve();
  }),
  ofCluster('the execs of the API server are cut', async (server) => {
    server.execs.cut();
    await Promise.resolve();
  }),
  ofPod('a node goes away with its pod', async (server, name) => await server.cluster.vanish(name)),
  ofPod('a pod is evicted', async (server, name) => await server.cluster.evict(name)),
  ofPod('a container is ended for its memory', async (server, name) => await server.cluster.outOfMemory(name)),
];

function ofCluster(name: string, run: (server: KubernetesTestServer, random: Random) => Promise<void>): Fault {
  return {
    ...{ name, weight: 1, touches: 'boxes' },
    isPossible: ({ pods }: Context) => pods.cluster !== null,
    run: async ({ pods, random }: Context) => {
      if (pods.cluster !== null) await run(pods.cluster, random);
    },
  };
}

function ofPod(name: string, run: (server: KubernetesTestServer, pod: string) => Promise<void>): Fault {
  return ofCluster(name, async (server, random) => {
    const running = server.store.all('pods').filter(({ status }) => status?.['phase'] === 'Running');
    if (running.length > 0) await run(server, pick(random, running).metadata.name);
  });
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has just ended by itself.
  }
}
