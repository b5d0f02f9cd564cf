/**
 * Runs the import laws of .dependency-cruiser.cjs and guards against the run that saw nothing.
 *
 * dependency-cruiser without a TypeScript parser it understands reports "no violations" over zero modules and exits 0.
 * So a run counts only when it cruised at least as many modules as src has .ts and .tsx files, named each of those files, and
 * found a dependency in each file that has an import line.
 *
 * `node scripts/layers.mjs [root]` checks another tree (the tidy test plants violations in one).
 */
import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const CRUISER = path.join(HERE, '../node_modules/dependency-cruiser/bin/dependency-cruiser.mjs');
const CONFIG = path.join(HERE, '../.dependency-cruiser.cjs');
const OUTPUT_BYTES_MAX = 256 * 1024 * 1024;

/** The cruiser's JSON over src. */
async function cruise(root) {
  // The laws are about src. What it imports elsewhere is followed; tests are not read, their `using` is not understood.
  const argv = [CRUISER, '--config', CONFIG, '--output-type', 'json', 'src'];
  const { stdout, stderr } = await new Promise((resolve) => {
    execFile(process.execPath, argv, { cwd: root, maxBuffer: OUTPUT_BYTES_MAX }, (_error, out, err) =>
      resolve({ stdout: out, stderr: err }),
    );
  });
  try {
    return JSON.parse(stdout);
  } catch {
    throw new Error(`dependency-cruiser gave no JSON:\n${stdout.slice(0, 2_000)}${stderr}`);
  }
}

/** What the cruise missed, as sentences; empty when it saw everything. */
async function missed(root, result) {
  const entries = await readdir(path.join(root, 'src'), { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)).split(path.sep).join('/'));
  const { totalCruised } = result.summary;
  const problems = [];
  if (totalCruised < files.length)
    problems.push(`cruised ${totalCruised} modules, but src has ${files.length} .ts and .tsx files`);
  const modules = new Map(result.modules.map((module) => [module.source, module]));
  const checks = files.map(async (file) => {
    const module = modules.get(file);
    if (module === undefined) return [`${file} was not cruised`];
    if (module.dependencies.length > 0) return [];
    const text = await readFile(path.join(root, file), 'utf8');
    return /^(import|export)\b[^;'"]*\bfrom\s*['"]|^import\s*['"]/m.test(text)
      ? [`${file} has imports, but none was seen`]
      : [];
  });
  return [...problems, ...(await Promise.all(checks)).flat()];
}

const root = path.resolve(process.argv[2] ?? path.join(HERE, '..'));
const result = await cruise(root);
const comments = new Map((result.summary.ruleSetUsed?.forbidden ?? []).map((rule) => [rule.name, rule.comment]));
const violations = result.summary.violations.filter((violation) => violation.rule.severity === 'error');
for (const { rule, from, to } of violations) {
  console.log(`${rule.name}: ${from}${to === from ? '' : ` → ${to}`}\n    ${comments.get(rule.name) ?? ''}`);
}
const blind = await missed(root, result);
for (const sentence of blind) console.log(`count guard: ${sentence}`);
console.log(`${result.summary.totalCruised} modules, ${violations.length} violations`);
process.exitCode = violations.length + blind.length > 0 ? 1 : 0;
