import { rm } from 'node:fs/promises';
import type { TestProject } from 'vitest/node';
import { findNatsServer } from '#src/embedded/nats-binary.ts';
import { makeCluster } from './cluster.ts';
import { findS3Server } from './s3-server.ts';

/** Once, before the workers start: or several of them would fetch the same server at the same time. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const report = (line: string): void => void process.stdout.write(`${line}\n`);
  await findNatsServer({ report });
  await findS3Server(report);
  const cluster = await makeCluster();
  project.provide('cluster', cluster);
  return async () => {
    if (cluster !== null) await rm(cluster, { recursive: true, force: true });
  };
}
