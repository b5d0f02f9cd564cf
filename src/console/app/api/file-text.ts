import { useQuery } from '@tanstack/react-query';
import { TENANT_HEADER } from './door.ts';
import { useHost } from './host.tsx';

/** Bytes of a file that are read to be shown; all of it can be downloaded. */
const SHOWN_BYTES_MAX = 256 * 1_024;

interface FileText {
  /** null: it is not text. */
  readonly text: string | null;
  /** There is more of it. */
  readonly isCut: boolean;
}

export interface FileAddress {
  /** Of the API, from `/v1/` on. */
  readonly path: string;
  readonly size: number;
  /** Of the bytes: they are read once, wherever they are. */
  readonly sha256: string;
}

const EMPTY: FileText = { text: '', isCut: false };

/** The beginning of a file as text; null: no file, and so no text. */
export function useFileText(file: FileAddress | null) {
  const { door, onSignedOut } = useHost();
  return useQuery({
    // The same bytes may be at many records.
    queryKey: ['file', file?.sha256],
    queryFn: async ({ signal }): Promise<FileText> => {
      if (file === null || file.size === 0) return EMPTY;
      const headers = { range: `bytes=0-${SHOWN_BYTES_MAX - 1}`, [TENANT_HEADER]: door.tenant ?? '' };
      const response = await fetch(`/api${file.path}`, { credentials: 'same-origin', headers, signal });
      if (response.status === 401) onSignedOut();
      if (!response.ok) throw new Error(`The file cannot be read: the Host answered with status ${response.status}.`);
      return textOf(new Uint8Array(await response.arrayBuffer()), file.size > SHOWN_BYTES_MAX);
    },
    staleTime: Infinity,
  });
}

function textOf(bytes: Uint8Array, isCut: boolean): FileText {
  if (bytes.includes(0)) return { text: null, isCut };
  // As of a stream: a character that the cut goes through is left out.
  return { text: new TextDecoder().decode(bytes, { stream: isCut }), isCut };
}
