const SUBJECT = /^[\x21-\x7e]{1,200}$/;

/** Names reserved for the Host. */
export const RESERVED_SUBJECTS: readonly string[] = ['host', 'studio'];

/** Whether a text has the form of a subject: 1 to 200 visible ASCII characters. */
export function hasSubjectForm(text: string): boolean {
  return SUBJECT.test(text);
}

/** Whether a text may name a person. */
export function isSubject(text: string): boolean {
  return hasSubjectForm(text) && !RESERVED_SUBJECTS.includes(text);
}
