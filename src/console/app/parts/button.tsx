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
