/**
 * A stand-in for a Host that makes its streams: takes the URL of NATS, the number of shards and of copies, and perhaps
 * fault points, and ends with code 0 when everything is there. A refusal is one line and code 1.
 */
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { ensureTopology } from '#src/streams/jetstream/topology.ts';
import { armFaultPoints } from '#src/lib/fault-points.ts';

const [url = '', shards = '', replicas = '', faultPoints = ''] = process.argv.slice(2);
armFaultPoints(faultPoints);
const connections = await connectNats(url, 'maker');
try {
  await ensureTopology(connections.appends, { shards: Number(shards), replicas: Number(replicas) });
} catch (error) {
  process.stderr.write(`${String(error)}\n`);
  process.exitCode = 1;
} finally {
  await closeNats(connections);
}
