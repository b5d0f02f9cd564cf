import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { runS3Server } from './s3-server.ts';
import type { RunningServer } from './s3-server.ts';

const BUCKET = 'agent-host-objects';
const credentials = { accessKeyId: 'test', secretAccessKey: 'test-secret' };

/** An S3 server of its own for one test file, with one empty bucket. What it holds is gone with it. */
export class TestS3 implements AsyncDisposable {
  readonly #server: RunningServer;

  private constructor(server: RunningServer) {
    this.#server = server;
  }

  static async start(): Promise<TestS3> {
    const test = new TestS3(await runS3Server());
    const { endpoint, region } = test.options();
    const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
    await client.send(new CreateBucketCommand({ Bucket: BUCKET }));
    client.destroy();
    return test;
  }

  get port(): number {
    return this.#server.port;
  }

  /** What a Host is started with to use it, perhaps through another port: a proxy's. */
  environment(port = this.port): Record<string, string> {
    return {
      S3_ENDPOINT: `http://127.0.0.1:${port}`,
      S3_BUCKET: BUCKET,
      S3_ACCESS_KEY_ID: credentials.accessKeyId,
      S3_SECRET_ACCESS_KEY: credentials.secretAccessKey,
    };
  }

  /** The same for the driver alone. */
  options(port = this.port) {
    const endpoint = `http://127.0.0.1:${port}`;
    return { endpoint, bucket: BUCKET, region: 'us-east-1', credentials, pathStyle: true };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.stop();
  }
}
