import { useQueryClient } from '@tanstack/react-query';
import type { QueryKey } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import type { ApiCall } from '../lib/as-code.ts';
import { AsCode } from './as-code.tsx';
import { Button } from './button.tsx';
import { Dialog } from './dialog.tsx';
import { Failure } from './page.tsx';
import { useAction } from './use-action.ts';

/** What was typed, by the names of the fields. */
export type Typed = (name: string) => string;

interface FormDialogProps {
  readonly title: string;
  readonly about?: ReactNode;
  /** What its button says. */
  readonly verb: string;
  readonly kind?: 'primary' | 'danger';
  readonly call: ApiCall;
  /** What is typed is read when it is sent, and is in no state before or after. */
  readonly act: (typed: Typed) => Promise<unknown>;
  /** What is read again when it is done: keys of queries that begin with this. */
  readonly changes?: QueryKey;
  readonly onClose: () => void;
  /** When it is done; without it, it closes. */
  readonly onDone?: () => void;
  readonly children?: ReactNode;
}

/** Asks for what an action needs, or only whether it is meant; closes when it is done. */
export function FormDialog(props: FormDialogProps): ReactNode {
  const { title, about, verb, kind = 'primary', call, act, changes, onClose, onDone = onClose, children } = props;
  const queries = useQueryClient();
  const action = useAction();
  return (
    <Dialog title={title} about={about} isOpen onClose={onClose}>
      <form
        className="stack"
        autoComplete="off"
        onSubmit={(event) => {
          event.preventDefault();
          const form = event.currentTarget;
          const data = new FormData(form);
          // What was sent stays in no field, also when it is refused.
          for (const secret of form.querySelectorAll<HTMLInputElement>('input[type="password"]')) secret.value = '';
          const typed: Typed = (name) => {
            const value = data.get(name);
            return typeof value === 'string' ? value.trim() : '';
          };
          action.run(async () => {
            await act(typed);
            if (changes !== undefined) await queries.invalidateQueries({ queryKey: changes });
            onDone();
          });
        }}
      >
        {children}
        {action.error !== null && <Failure error={action.error} />}
        <div className="dialog-foot">
          <AsCode calls={[call]} />
          <Button className="spread" onClick={onClose}>
            Cancel
          </Button>
          <Button kind={kind} type="submit" disabled={action.isPending}>
            {verb}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

interface FieldProps {
  readonly label: string;
  readonly name: string;
  readonly value?: string | undefined;
  readonly isRequired?: boolean;
  readonly type?: 'text' | 'url' | 'number';
  readonly list?: readonly string[];
}

export function Field({ label, name, value, isRequired = false, type = 'text', list }: FieldProps): ReactNode {
  const options = list === undefined ? undefined : `options-${name}`;
  const number = type === 'number' ? { min: 0, step: 'any' } : {};
  return (
    <label className="field">
      {label}
      <input
        {...{ className: 'input', name, type, list: options, required: isRequired, defaultValue: value }}
        {...number}
      />
      {options !== undefined && (
        <datalist id={options}>
          {list?.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </datalist>
      )}
    </label>
  );
}

/** Something secret that is typed or pasted: browsers do not offer to keep it. */
export function SecretField({ label, name, isRequired = false }: Omit<FieldProps, 'value' | 'list'>): ReactNode {
  return (
    <label className="field">
      {label}
      <input className="input" type="password" name={name} autoComplete="new-password" required={isRequired} />
    </label>
  );
}

export function Choice(props: {
  readonly label: string;
  readonly name: string;
  readonly of: readonly string[];
  readonly value?: string | undefined;
}): ReactNode {
  const { label, name, of, value } = props;
  return (
    <label className="field">
      {label}
      <select className="input" name={name} defaultValue={value}>
        {of.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
    </label>
  );
}
