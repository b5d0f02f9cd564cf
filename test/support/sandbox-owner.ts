import { ENDLESS_SCRIPT, TestSandbox, virtualSandboxes } from './sandboxes.ts';

/** A process with a command under way that never ends, and a child that is idle: to be killed. Says when both are there. */
const [bubblewrap] = process.argv.slice(2);
const driver = virtualSandboxes({ bubblewrap: bubblewrap === 'required' ? 'required' : 'off' });
await new TestSandbox(driver, 'tn_idle').bash('true');
void new TestSandbox(driver, 'tn_busy').bash(`sleep 0.2; ${ENDLESS_SCRIPT}`, 600);
// The busy one has the child that was ready in advance, or one of its own; it runs when it is not waited for any more.
while (driver.status().busy < 1) await new Promise((resolve) => setTimeout(resolve, 10));
process.stdout.write('busy\n');
