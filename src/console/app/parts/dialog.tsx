import { Dialog as Base } from '@base-ui/react/dialog';
import type { ReactNode } from 'react';

interface DialogProps {
  readonly title: string;
  readonly about?: ReactNode;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly isWide?: boolean;
  readonly children: ReactNode;
}

/** A modal dialog: it takes the focus, Escape closes it, and the focus goes back. */
export function Dialog({ title, about, isOpen, onClose, isWide = false, children }: DialogProps): ReactNode {
  return (
    <Base.Root open={isOpen} onOpenChange={(next) => (next ? undefined : onClose())}>
      <Base.Portal>
        <Base.Backdrop className="backdrop" />
        <Base.Popup className="dialog" data-wide={isWide ? '' : undefined}>
          <Base.Title>{title}</Base.Title>
          {about !== undefined && <Base.Description className="muted">{about}</Base.Description>}
          {children}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
