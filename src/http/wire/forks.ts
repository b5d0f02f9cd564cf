import { z } from 'zod';
import { clientId, text } from '../../domain/kernel/schemas.ts';
import { idempotencyKey, requestId } from './parts.ts';

export const forkBody = z.strictObject({
  requestId,
  idempotencyKey,
  /** Of the new session. */
  id: clientId,
  /** The last record that it inherits. What is not a cursor is refused where it is read. */
  cursor: text(1, 1_000).optional(),
});
