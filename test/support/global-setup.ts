import { findS3Server } from './s3-server.ts';
import { findNatsServer } from '#src/embedded/nats-binary.ts';

/** Once, before the workers start: or several of them would fetch the same server at the same time. */
export default async function setup(): Promise<void> {
  const report = (line: string): void => void process.stdout.write(`${line}\n`);
  await findNatsServer({ report });
  await findS3Server(report);
}
