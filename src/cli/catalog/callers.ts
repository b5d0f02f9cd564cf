import type { Entry } from './entry.ts';

/** What every command of a caller takes. */
const COMMON = {
  context: { type: 'string', value: '<name>', what: 'another context than the current one' },
  json: { type: 'boolean', what: 'print JSON, one value a line' },
} as const;
const LIMIT = { type: 'string', value: '<n>', what: 'at most so many; 20 without it' } as const;
const OUT = { type: 'string', short: 'o', value: '<file>', what: 'where to; - is standard output' } as const;
const URL_OF_HOST = { type: 'string', value: '<url>', what: 'where the Host is' } as const;

/** The commands of those who call a Host. */
export const CALLER_COMMANDS = {
  init: {
    words: '',
    summary: 'make a tenant with a key and an agent, and remember them; needs the key of the Host admin',
    options: {
      ...COMMON,
      url: { ...URL_OF_HOST, what: 'where the Host is; without it, the one of the data directory' },
      name: { type: 'string', value: '<text>', what: 'the name of the tenant' },
    },
    examples: ['agent-host init', 'AGENT_HOST_ADMIN_KEY=… agent-host init --url https://agents.example --context work'],
  },
  login: {
    words: '',
    summary: 'remember a Host, a tenant and a key, which is asked for or read from standard input',
    options: {
      ...COMMON,
      url: URL_OF_HOST,
      tenant: { type: 'string', value: '<id>', what: 'whose key it is' },
      agent: { type: 'string', value: '<id>', what: 'the agent that chat and run talk to' },
    },
    examples: ['agent-host login --url https://agents.example --tenant tn_1 --context work < key'],
  },
  'context list': {
    words: '',
    summary: 'the contexts: which Host, tenant and agent, never a key',
    options: { json: COMMON.json },
    examples: ['agent-host context list'],
  },
  'context show': {
    words: '[name]',
    summary: 'one context, without its key; the current one without a name',
    options: { json: COMMON.json },
    examples: ['agent-host context show work --json'],
  },
  'context use': {
    words: '<name>',
    summary: 'make a context the current one',
    options: { json: COMMON.json },
    examples: ['agent-host context use work'],
  },
  'context remove': {
    words: '<name>',
    summary: 'forget a context and its key; the key stays valid at the Host',
    options: { json: COMMON.json },
    examples: ['agent-host context remove work'],
  },
  console: {
    words: '',
    summary: 'pages for a browser of this machine, behind a link that signs in once; the key stays here',
    options: {
      ...COMMON,
      link: { type: 'boolean', what: 'print a new link to the console of the Host of the data directory' },
      port: { type: 'string', value: '<n>', what: 'where to listen, on 127.0.0.1; without it 7080, or any free one' },
    },
    examples: ['agent-host console --link', 'agent-host console --context work --port 7081'],
  },
  chat: {
    words: '[agent]',
    summary: 'talk to an agent at the terminal; answer what it asks',
    options: {
      context: COMMON.context,
      json: { type: 'boolean', what: 'print the records of the conversation as JSON, one a line' },
      attach: { type: 'string', value: '<session>', what: 'take up a session' },
    },
    examples: ['agent-host chat', 'agent-host chat --attach 5f0c6c1e'],
  },
  run: {
    words: '<text>',
    summary: 'one message and the output of its turn; exit code 1 when it does not complete',
    options: {
      context: COMMON.context,
      json: { type: 'boolean', what: 'print the records of the turn as JSON, one a line' },
      agent: { type: 'string', value: '<id>', what: 'another agent' },
      session: { type: 'string', value: '<id>', what: 'in this session instead of a new one' },
    },
    examples: ['agent-host run "What time is it?"', 'agent-host run "And now?" --session first --json'],
  },
  'sessions list': {
    words: '',
    summary: 'sessions, newest first',
    options: { ...COMMON, limit: LIMIT },
    examples: ['agent-host sessions list --limit 5'],
  },
  'sessions show': {
    words: '<id>',
    summary: 'the history of a session as it is now',
    options: COMMON,
    examples: ['agent-host sessions show first'],
  },
  'sessions tail': {
    words: '<id>',
    summary: 'what happens in a session, until Ctrl-C',
    options: {
      ...COMMON,
      from: { type: 'string', value: '<cursor>', what: 'after this place, start, or latest (the default)' },
    },
    examples: ['agent-host sessions tail first --from start --json'],
  },
  'sessions fork': {
    words: '<id> [new-id]',
    summary: 'a new session with the history of another',
    options: { ...COMMON, cursor: { type: 'string', value: '<cursor>', what: 'up to there; without it, all of it' } },
    examples: ['agent-host sessions fork first second'],
  },
  'sessions export': {
    words: '<id>',
    summary: 'the history of a session as JSON lines; agent-host export session writes a signed one',
    options: { context: COMMON.context, json: COMMON.json, out: OUT },
    examples: ['agent-host sessions export first --out first.jsonl'],
  },
  inbox: {
    words: '',
    summary: 'what people have to answer, oldest first',
    options: { ...COMMON, limit: LIMIT },
    examples: ['agent-host inbox'],
  },
  usage: {
    words: '',
    summary: 'what model calls used, with a line of its days',
    options: {
      ...COMMON,
      by: { type: 'string', value: '<model|agent|session|day>', what: 'what is added up; model without it' },
      days: { type: 'string', value: '<n>', what: 'of the last days, 1 to 366; 30 without it' },
    },
    examples: ['agent-host usage', 'agent-host usage --by agent --days 7'],
  },
  'agents list': {
    words: '',
    summary: 'the agents, by id',
    options: { ...COMMON, limit: LIMIT },
    examples: ['agent-host agents list'],
  },
  'agents show': {
    words: '<id>',
    summary: 'an agent with its manifest, as YAML that apply takes',
    options: COMMON,
    examples: ['agent-host agents show helper > helper.yaml'],
  },
  'agents apply': {
    words: '[<id> <file>]',
    summary: 'save the manifests of a YAML or JSON file, and show what changes before',
    options: {
      ...COMMON,
      file: {
        type: 'string',
        short: 'f',
        value: '<file>',
        what: 'documents with agentId and manifest; - is standard input',
      },
      'dry-run': { type: 'boolean', what: 'show what would change, and save nothing' },
      yes: { type: 'boolean', short: 'y', what: 'do not ask' },
    },
    examples: ['agent-host agents apply -f agents.yaml --dry-run', 'agent-host agents apply helper helper.json'],
  },
  'executor run': {
    words: '<file.ts> [agent]',
    summary: "run an agent's tools: the functions that a file exports, by their names, until Ctrl-C",
    options: {
      ...COMMON,
      concurrency: { type: 'string', value: '<n>', what: 'actions at the same time, 1 to 100; 10 without it' },
      'keep-token': {
        type: 'boolean',
        what: 'use the token in AGENT_HOST_EXECUTOR_TOKEN; without it a new one replaces the one of the agent',
      },
    },
    examples: ['agent-host executor run tools.ts helper'],
  },
  'artifacts list': {
    words: '',
    summary: 'files and folders, oldest first',
    options: { ...COMMON, limit: LIMIT, session: { type: 'string', value: '<id>', what: 'of this session only' } },
    examples: ['agent-host artifacts list --session first'],
  },
  'artifacts versions': {
    words: '<id>',
    summary: 'the versions of an artifact',
    options: COMMON,
    examples: ['agent-host artifacts versions ar_1'],
  },
  'artifacts get': {
    words: '<id>',
    summary: 'the bytes of a file, or of a file of a folder',
    options: {
      ...COMMON,
      out: { ...OUT, what: 'where to; - is standard output; without it, the name that it has' },
      version: { type: 'string', value: '<n>', what: 'a version other than the latest' },
      path: { type: 'string', value: '<path>', what: 'the file of a folder' },
    },
    examples: ['agent-host artifacts get ar_1 --out report.pdf'],
  },
  'artifacts put': {
    words: '<file>',
    summary: 'store a file, or a further version of one',
    options: {
      ...COMMON,
      name: { type: 'string', value: '<name>', what: 'another name' },
      of: { type: 'string', value: '<id>', what: 'as a further version of this artifact' },
      session: { type: 'string', value: '<id>', what: 'for this session' },
      label: { type: 'string', multiple: true, value: '<key=value>', what: 'a label; may be repeated' },
      type: { type: 'string', value: '<content type>', what: 'without it, by the name' },
    },
    examples: ['agent-host artifacts put report.pdf --session first --label kind=report'],
  },
  'artifacts zip': {
    words: '<id>',
    summary: 'all files of a folder as a zip',
    options: {
      ...COMMON,
      out: OUT,
      version: { type: 'string', value: '<n>', what: 'a version other than the latest' },
    },
    examples: ['agent-host artifacts zip ar_1 --out folder.zip'],
  },
  'artifacts diff': {
    words: '<id> [from] [to]',
    summary: 'which files of a folder differ between two versions; the latest and the one before without them',
    options: COMMON,
    examples: ['agent-host artifacts diff ar_1 1 3'],
  },
  'vaults list': {
    words: '',
    summary: 'vaults, newest first',
    options: { ...COMMON, limit: LIMIT, subject: { type: 'string', value: '<person>', what: 'of this person only' } },
    examples: ['agent-host vaults list --subject ann'],
  },
  'vaults create': {
    words: '<name>',
    summary: 'a vault for the credentials of a person',
    options: { ...COMMON, subject: { type: 'string', value: '<person>', what: 'whose it is' } },
    examples: ['agent-host vaults create "Ann" --subject ann'],
  },
  'vaults credentials': {
    words: '<vault>',
    summary: 'the credentials of a vault, without what is secret',
    options: COMMON,
    examples: ['agent-host vaults credentials va_1'],
  },
  'vaults add': {
    words: '<vault> <name> <url>',
    summary: 'a credential for a server; its token is asked for or read from standard input',
    options: {
      ...COMMON,
      'sign-in': { type: 'boolean', what: 'without a token: one that a sign-in gets (OAuth)' },
      scope: { type: 'string', multiple: true, value: '<scope>', what: 'asked for in a sign-in; may be repeated' },
    },
    examples: [
      'agent-host vaults add va_1 Tickets https://tickets.example/mcp < token',
      'agent-host vaults add va_1 Mail https://mail.example/mcp --sign-in',
    ],
  },
  'vaults sign-in': {
    words: '<vault> <credential>',
    summary: 'print the address where the person signs in, and wait for the browser to return',
    options: {
      ...COMMON,
      redirect: {
        type: 'string',
        value: '<url>',
        what: 'where the browser returns instead; its address is then read from standard input',
      },
    },
    examples: ['agent-host vaults sign-in va_1 cr_1'],
  },
  'budgets list': {
    words: '',
    summary: 'the budgets and what is spent of them',
    options: COMMON,
    examples: ['agent-host budgets list'],
  },
  'budgets set': {
    words: '',
    summary: 'a budget for the tenant, an agent or a session; it replaces the one of the same scope and period',
    options: {
      ...COMMON,
      agent: { type: 'string', value: '<id>', what: 'for this agent' },
      session: { type: 'string', value: '<id>', what: 'for this session' },
      period: { type: 'string', value: '<day|month|total>', what: 'month without it' },
      usd: { type: 'string', value: '<n>', what: 'at most so many US dollars' },
      tokens: { type: 'string', value: '<n>', what: 'at most so many tokens' },
    },
    examples: ['agent-host budgets set --usd 50', 'agent-host budgets set --agent helper --period day --tokens 100000'],
  },
  'budgets remove': {
    words: '<id>',
    summary: 'remove a budget',
    options: COMMON,
    examples: ['agent-host budgets remove bg_1'],
  },
  api: {
    words: '[operationId] [name=value …]',
    summary: 'any operation of the API, its answer as it comes; without one, all that there are',
    options: {
      context: COMMON.context,
      json: { type: 'boolean', what: 'list the operations as JSON' },
      body: { type: 'string', value: '<json|@file|->', what: 'a JSON text, a file, or standard input' },
    },
    examples: ['agent-host api', 'agent-host api getSession sessionId=first'],
  },
  completion: {
    words: '<bash|zsh|fish>',
    summary: 'the lines that teach a shell to complete these commands',
    options: {},
    examples: ['eval "$(agent-host completion bash)"', 'agent-host completion fish | source'],
  },
  help: {
    words: '[command]',
    summary: 'the commands, or one of them with its options and examples',
    options: {},
    examples: ['agent-host help agents apply'],
  },
} as const satisfies Readonly<Record<string, Entry>>;

/** The options of a command of a caller, as `readArguments` takes them. */
export function optionsOf<N extends keyof typeof CALLER_COMMANDS>(name: N): (typeof CALLER_COMMANDS)[N]['options'] {
  return CALLER_COMMANDS[name].options;
}
