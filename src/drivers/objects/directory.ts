import { constants } from 'node:fs';
import { access, mkdir } from 'node:fs/promises';
import type { ObjectStore } from './port.ts';

/** Objects in a directory of the machine, the default of the embedded Host. */
export async function directoryObjects(path: string): Promise<ObjectStore> {
  await mkdir(path, { recursive: true });
  return {
    check: async () => {
      await access(path, constants.R_OK | constants.W_OK | constants.X_OK);
    },
  };
}
