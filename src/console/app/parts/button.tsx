import type { ButtonHTMLAttributes, ReactNode } from 'react';

export interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  readonly kind?: 'primary' | 'danger' | 'quiet' | undefined;
  readonly isSmall?: boolean | undefined;
}

export function Button({ kind, isSmall = false, type = 'button', ...rest }: ButtonProps): ReactNode {
  return (
    <button
      {...rest}
      type={type === 'submit' ? 'submit' : 'button'}
      className={`button ${rest.className ?? ''}`}
      data-kind={kind}
      data-small={isSmall ? '' : undefined}
    />
  );
}

/** In a row of a table: its name says which row it is of. */
export function RowButton({ name, ...rest }: ButtonProps & { readonly name: string }): ReactNode {
  return <Button isSmall kind="quiet" aria-label={name} {...rest} />;
}
