import { useState } from 'react';
import type { ReactNode } from 'react';
import type { FileAddress } from '../../../api/file-text.ts';
import { useFileText } from '../../../api/file-text.ts';
import { bytes, count } from '../../../lib/format.ts';
import { oneLine } from '../../../lib/plain-text.ts';
import { Button } from '../../../parts/button.tsx';
import { Empty, Loaded } from '../../../parts/page.tsx';
import { PlainText, Pre } from '../../../parts/plain-text.tsx';
import { DiffView } from '../diff-view.tsx';
import './files.css';

/** A file, and what it is compared with. */
export interface BrowsedFile {
  readonly path: string;
  /** null: it is gone. */
  readonly file: FileAddress | null;
  /** The other one; null: there was none. Absent: nothing is compared. */
  readonly before?: FileAddress | null | undefined;
  /** What became of it, in a word. */
  readonly mark?: string | undefined;
}

const FIRST = 200;
const PATH_CHARS = 200;

/** Files by their path, and the one that is chosen as text. */
export function FileBrowser({
  label,
  files,
}: {
  readonly label: string;
  readonly files: readonly BrowsedFile[];
}): ReactNode {
  const [chosen, setChosen] = useState<string | null>(null);
  const [limit, setLimit] = useState(FIRST);
  const shown = files.find(({ path }) => path === chosen);
  if (files.length === 0) return <Empty title="No files">{null}</Empty>;
  return (
    <div className="files">
      {/* A scrolling region has to be reachable by keyboard; the buttons in it are. */}
      <ul className="files-list" aria-label={label}>
        {files.slice(0, limit).map(({ path, file, mark }) => (
          <li key={path}>
            <button type="button" className="files-file" aria-pressed={path === chosen} onClick={() => setChosen(path)}>
              <code>{oneLine(path, PATH_CHARS)}</code>
              <span className="small muted">
                {mark !== undefined && `${mark} `}
                {file !== null && bytes(file.size)}
              </span>
            </button>
          </li>
        ))}
        {files.length > limit && (
          <li>
            <Button isSmall onClick={() => setLimit(limit * 4)}>
              Show more ({count(files.length - limit)} left)
            </Button>
          </li>
        )}
      </ul>
      {shown === undefined ? (
        <p className="muted small">Choose a file to read it.</p>
      ) : (
        <OneFile key={shown.path} browsed={shown} />
      )}
    </div>
  );
}

function OneFile({ browsed }: { readonly browsed: BrowsedFile }): ReactNode {
  const { path, file, before } = browsed;
  return (
    <section className="stack" aria-label={`File ${oneLine(path, PATH_CHARS)}`}>
      <div className="row">
        <h3>
          <bdi>{oneLine(path, PATH_CHARS)}</bdi>
        </h3>
        <span className="spread" />
        {file !== null && (
          <a href={`/api${file.path}`} download={path.slice(path.lastIndexOf('/') + 1)}>
            Download
          </a>
        )}
      </div>
      {before === undefined ? <Whole file={file} /> : <Compared path={path} before={before} after={file} />}
    </section>
  );
}

function Whole({ file }: { readonly file: FileAddress | null }): ReactNode {
  const query = useFileText(file);
  return (
    <Loaded query={query}>
      {({ text, isCut }) =>
        text === null ? (
          <p className="muted">It is not text.</p>
        ) : (
          <>
            <Pre>{text === '' ? <span className="muted">(empty)</span> : <PlainText text={text} />}</Pre>
            {isCut && <CutNote />}
          </>
        )
      }
    </Loaded>
  );
}

interface ComparedProps {
  readonly path: string;
  readonly before: FileAddress | null;
  readonly after: FileAddress | null;
}

function Compared({ path, before, after }: ComparedProps): ReactNode {
  const old = useFileText(before);
  const now = useFileText(after);
  return (
    <Loaded query={old}>
      {(one) => (
        <Loaded query={now}>
          {(other) =>
            one.text === null || other.text === null ? (
              <p className="muted">It is not text.</p>
            ) : (
              <>
                <DiffView title={path} before={one.text} after={other.text} />
                {(one.isCut || other.isCut) && <CutNote />}
              </>
            )
          }
        </Loaded>
      )}
    </Loaded>
  );
}

function CutNote(): ReactNode {
  return <p className="small muted">The first 256 KiB. The download has all of it.</p>;
}
