import type { TurnEvent } from './events.ts';

/** Who attends to a turn: a worker, or a time at which one has to. */
export interface Attendance {
  /** Which worker claimed it last; null: its claim was released, or there was none. */
  readonly workerId: string | null;
  /** No worker runs it and one should. */
  readonly wanted: boolean;
  /**
   * No worker has to run it before this time; null, or absent where it was stored before such times existed: no such
   * time.
   */
  readonly restsUntil?: string | null;
}

/** What an event changes about who attends to its turn; null: nothing. */
export function attendanceAfter(event: TurnEvent): Partial<Attendance> | null {
  switch (event.type) {
    case 'turn.started':
      return { workerId: null, wanted: true, restsUntil: null };
    case 'segment.claimed':
      return { workerId: event.data.workerId, wanted: false, restsUntil: null };
    case 'segment.released':
      return { workerId: null, ...restAfter(event.data) };
    case 'segment.wanted':
      return { wanted: true, restsUntil: null };
    default:
      return null;
  }
}

/** Whether a worker runs the turn, or should. */
export function isAttended({ workerId, wanted, restsUntil }: Partial<Attendance>): boolean {
  return (workerId ?? null) !== null || wanted === true || (restsUntil ?? null) !== null;
}

/** A turn that a worker releases is idle until an answer arrives, is idle until a time, or needs another worker. */
export function restAfter({ resting, until }: Extract<TurnEvent, { type: 'segment.released' }>['data']): {
  readonly wanted: boolean;
  readonly restsUntil: string | null;
} {
  return { wanted: resting !== true && until === undefined, restsUntil: until ?? null };
}
