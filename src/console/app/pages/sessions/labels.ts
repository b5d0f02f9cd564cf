/** The labels in a text such as `team=a env=b`, as the list of sessions takes them. */
export function labelsIn(text: string): readonly string[] {
  return text.split(/\s+/).filter((word) => /^[^=]+=./.test(word));
}

/** The same as an object. The last of two with the same name counts. */
export function labelObject(text: string): Readonly<Record<string, string>> {
  return Object.fromEntries(
    labelsIn(text).map((label) => {
      const at = label.indexOf('=');
      return [label.slice(0, at), label.slice(at + 1)];
    }),
  );
}
