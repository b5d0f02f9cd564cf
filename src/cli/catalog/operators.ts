import type { Entry } from './entry.ts';

const none = {} as const;
const json = { type: 'boolean', what: 'print JSON, one value a line' } as const;
const JSON_ONLY = { json } as const;

/** The commands of those who run a Host; what they take is parsed where they are. */
export const OPERATOR_COMMANDS = {
  up: {
    words: '',
    summary: 'run the Host, configured by environment variables (docs/operations.md); so does agent-host by itself',
    options: none,
    examples: ['AGENT_HOST_FIXTURE_MODEL=1 agent-host up'],
  },
  migrate: {
    words: '',
    summary: 'bring the database up to date for this version, as a step before its nodes start',
    options: JSON_ONLY,
    examples: ['agent-host migrate'],
  },
  'projections rebuild': {
    words: '[name]',
    summary: 'rebuild the read models from the log and swap them in',
    options: JSON_ONLY,
    examples: ['agent-host projections rebuild'],
  },
  'audit replay': {
    words: '[name]',
    summary: 'replay the log beside and report every row that differs from the live one',
    options: {
      until: { type: 'string', value: '<time|cursor>', what: 'up to there' },
      json,
    },
    examples: ['agent-host audit replay --until 2026-11-01T00:00:00Z'],
  },
  'audit verify': {
    words: '',
    summary: 'check every commit of the log: chains, seals, shapes, its end',
    options: {
      state: { type: 'string', value: '<file>', what: 'an interrupted run continues where it was' },
      json,
    },
    examples: ['agent-host audit verify --state verify.json'],
  },
  'keys rotate': {
    words: '',
    summary: "wrap the tenants' data keys with the first key of the key file, while the Host runs",
    options: JSON_ONLY,
    examples: ['agent-host keys rotate'],
  },
  backup: {
    words: '<directory>',
    summary: 'copy log, keys and objects into a directory, while the Host runs',
    options: JSON_ONLY,
    examples: ['agent-host backup /backups/monday'],
  },
  restore: {
    words: '<directory>',
    summary: 'make a new installation from a backup; no Host may run on it yet',
    options: JSON_ONLY,
    examples: ['AGENT_HOST_DATA_DIR=./.data-2 agent-host restore /backups/monday'],
  },
  reshard: {
    words: '',
    summary: 'move the log to more shards, while no Host runs; an interrupted move is continued',
    options: {
      to: { type: 'string', value: '<n>', what: 'how many, a multiple of what there are' },
      json,
    },
    examples: ['agent-host reshard --to 4'],
  },
  'export session': {
    words: '<tenant>/<id>',
    summary: "write a session's history into a signed file",
    options: {
      out: { type: 'string', value: '<file>', what: 'where to' },
      'with-bytes': { type: 'boolean', what: 'with the bytes of its files' },
      json,
    },
    examples: ['agent-host export session tn_1/first --out first.jsonl.gz'],
  },
  'export public-key': {
    words: '',
    summary: 'print the key that exports are signed with',
    options: JSON_ONLY,
    examples: ['agent-host export public-key > installation.pub'],
  },
  'verify-export': {
    words: '<file>',
    summary: 'check such a file, with nothing else at hand',
    options: { key: { type: 'string', value: '<public key>', what: 'the key that must have signed it' }, json },
    examples: ['agent-host verify-export first.jsonl.gz --key "$(cat installation.pub)"'],
  },
  capacity: {
    words: '[url …]',
    summary: 'what a running installation uses, by its metrics, and what gives way first',
    options: {
      seconds: { type: 'string', value: '<n>', what: 'how long it is watched' },
      json,
    },
    examples: ['agent-host capacity http://127.0.0.1:9464/metrics --seconds 30'],
  },
} as const satisfies Readonly<Record<string, Entry>>;

/** The options of a command of an operator, as `readArguments` takes them. */
export function operatorOptionsOf<N extends keyof typeof OPERATOR_COMMANDS>(
  name: N,
): (typeof OPERATOR_COMMANDS)[N]['options'] {
  return OPERATOR_COMMANDS[name].options;
}
