import type { ReactNode } from 'react';
import { Snippet } from './as-code.tsx';
import { Button } from './button.tsx';
import { Dialog } from './dialog.tsx';

interface ShownOnceProps {
  readonly title: string;
  readonly secret: string;
  readonly onClose: () => void;
}

/** A secret that was made. It is nowhere once this is closed. */
export function ShownOnce({ title, secret, onClose }: ShownOnceProps): ReactNode {
  return (
    <Dialog title={title} about="It is shown this once: copy it now." isOpen onClose={onClose}>
      <Snippet title="Secret" text={secret} />
      <div className="dialog-foot">
        <Button kind="primary" onClick={onClose}>
          I have it
        </Button>
      </div>
    </Dialog>
  );
}
