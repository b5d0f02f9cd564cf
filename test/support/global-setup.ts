import { findNatsServer } from '#src/app/embedded/nats-binary.ts';

/** Once, before the workers start: or several of them would fetch the nats-server at the same time. */
export default async function setup(): Promise<void> {
  await findNatsServer({ report: (line) => void process.stdout.write(`${line}\n`) });
}
