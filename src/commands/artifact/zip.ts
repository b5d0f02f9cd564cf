import { PassThrough } from 'node:stream';
import type { Readable } from 'node:stream';
import { ZipFile } from 'yazl';
import type { ArtifactDeps } from './deps.ts';
import { openFile, treeOf } from './read.ts';
import type { FoundVersion } from './read.ts';

/** Types that are already compressed: compressing them again only costs time. */
const PACKED = /^(image\/(?!svg|bmp)|video\/|audio\/|application\/(zip|gzip|x-7z|x-xz|zstd|pdf|vnd\.openxml))/;

/**
 * A version as a zip archive, made while it is read: one file at a time is open, and the reader sets the pace. The
 * archive of a version is the same every time.
 */
export async function zipOf(deps: Pick<ArtifactDeps, 'artifacts' | 'objects'>, found: FoundVersion): Promise<Readable> {
  const files = await treeOf(deps, found);
  const zip = new ZipFile();
  const out = new PassThrough();
  let open: Readable | null = null;
  const fail = (error: unknown): void => {
    open?.destroy();
    out.destroy(error instanceof Error ? error : new Error('the archive cannot be made'));
  };
  zip.on('error', fail);
  const mtime = new Date(found.version.createdAt);
  for (const file of files) {
    const options = { mtime, mode: 0o100644, forceDosTimestamp: true, compress: !PACKED.test(file.contentType) };
    zip.addReadStreamLazy(archivePath(file.path), options, (give) => {
      openFile(deps, found, file).then((stream) => {
        open = stream;
        stream.once('error', fail);
        // The client may have disconnected while the file was being opened.
        if (out.destroyed) stream.destroy();
        else give(null, stream);
      }, fail);
    });
  }
  zip.end();
  out.once('close', () => open?.destroy());
  zip.outputStream.once('error', fail);
  zip.outputStream.pipe(out);
  return out;
}

/** A name that begins like a Windows drive would be an absolute path there. */
function archivePath(path: string): string {
  return path.replace(/^([A-Za-z]):/, '$1_');
}
