import { fromBuffer } from 'yauzl';
import type { Entry, ZipFile } from 'yauzl';

/** What is in an archive, as text by path. @throws when it is damaged, or when a path would lead out of it */
export async function unzipped(archive: Buffer): Promise<Map<string, string>> {
  const zip = await new Promise<ZipFile>((resolve, reject) => {
    fromBuffer(archive, { lazyEntries: true }, (error, file) => (error === null ? resolve(file) : reject(error)));
  });
  const found = new Map<string, string>();
  return await new Promise((resolve, reject) => {
    zip.on('error', reject);
    zip.on('end', () => resolve(found));
    zip.on('entry', (entry: Entry) => {
      zip.openReadStream(entry, (error, stream) => {
        if (error !== null) return reject(error);
        const parts: Buffer[] = [];
        stream.on('data', (part: Buffer) => parts.push(part));
        stream.on('error', reject);
        stream.on('end', () => {
          found.set(entry.fileName, Buffer.concat(parts).toString());
          zip.readEntry();
        });
      });
    });
    zip.readEntry();
  });
}
