import { buildProgram } from '../../scripts/build.ts';

/** The program as it is started everywhere: the tests run what ships. */
export const PROGRAM = await buildProgram();
