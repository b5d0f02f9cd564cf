export function hostFlags(processors?: number, options?: string): readonly string[];
