/** Where bytes lie. Reading and writing them comes with the artifact routes; readiness asks for it from the first day. */
export interface ObjectStore {
  /** Cheap; resolves when the store can be written to. @throws when it cannot */
  check(): Promise<void>;
}
