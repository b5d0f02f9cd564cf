import { useCallback, useState } from 'react';

export interface Action {
  readonly isPending: boolean;
  readonly error: Error | null;
  readonly run: (act: () => Promise<void>) => void;
}

/**
 * Something that is done once, for what has or gives a secret: unlike a mutation of the query client nothing of it is
 * kept but why it failed.
 */
export function useAction(): Action {
  const [state, setState] = useState<Omit<Action, 'run'>>({ isPending: false, error: null });
  const run = useCallback((act: () => Promise<void>): void => {
    setState({ isPending: true, error: null });
    act().then(
      () => setState({ isPending: false, error: null }),
      (thrown: unknown) =>
        setState({ isPending: false, error: thrown instanceof Error ? thrown : new Error(String(thrown)) }),
    );
  }, []);
  return { ...state, run };
}
